-- One change of keys and accounts, or none but the mark: `init`, `set_key_end`, `set_account`.
--
-- KEYS 1 the mark, 2 keys, 3 digests, 4 accounts, 5 what changed when, 6 imports
-- ARGV 1 an id for the change, 2 what to do, 3 which key or account,
--      4 its expiry or its plan, 5 when it was revoked or its limit; '' leaves what is there
-- Answers the version that the change leads to; 0 where there is no such key; or, where an import
-- is about to make this account, 'busy', and where it was given up 'abandoned' and which one.

local mark, keys, accounts, changed, imports = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6]
local verb, name, end_or_plan, revoked_or_limit = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- Read and judged before anything is written: a script that fails is not undone.
local hash, row, member
if verb == 'set_key_end' then
    local known = redis.call('HGET', keys, name)
    if not known then return 0 end
    local born, expires, revoked, rest = string.match(known, '^(%S+) (%S+) (%S+) (.*)$')
    local status = born and import_status(imports, born) or 'damaged'
    if status == 'damaged' then
        return redis.error_reply('DAMAGED key ' .. name .. ': it admits no request')
    end
    if status ~= 'live' then return 0 end
    if end_or_plan ~= '' and (expires == '-' or tonumber(end_or_plan) < tonumber(expires)) then
        expires = end_or_plan
    end
    if revoked_or_limit ~= '' and revoked == '-' then revoked = revoked_or_limit end
    row = table.concat({born, expires, revoked, rest}, ' ')
    hash, member = keys, 'key:' .. name
elseif verb == 'set_account' then
    local known = redis.call('HGET', accounts, name) or '- - null'
    local born, limit, plan = string.match(known, '^(%S+) (%S+) (.+)$')
    local is_whole = born and import_status(imports, born) ~= 'damaged' and
        (limit == '-' or limit == 'unlimited' or string.match(limit, '^%d+$')) and
        (plan == 'null' or string.match(plan, '^".*"$'))
    -- One that can't be read begins anew.
    if not is_whole then born, limit, plan = '-', '-', 'null' end
    local status = import_status(imports, born)
    if status ~= 'live' then return {status, born} end
    if end_or_plan ~= '' then plan = end_or_plan end
    if revoked_or_limit ~= '' then limit = revoked_or_limit end
    hash, row, member = accounts, table.concat({born, limit, plan}, ' '), 'account:' .. name
end

if not row then
    redis.call('HSETNX', mark, 'store_id', ARGV[1])
    redis.call('HSETNX', mark, 'version', 1)
    return tonumber(redis.call('HGET', mark, 'version'))
end
local version = next_version(mark, ARGV[1])
-- Rows come last in each script that writes them: a user who lacks a right leaves none behind.
redis.call('ZADD', changed, version, member)
redis.call('HSET', hash, name, row)
return version
