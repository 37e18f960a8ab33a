-- Changes one key or account, or only initializes the store. ARGV 3 says which: `mark_as_store`,
-- `set_key_end` (of the operation `expire_or_revoke_key`) or `set_account`.
--
-- KEYS 1 metadata of the ring, 2 keys, 3 digests, 4 accounts, 5 changes, 6 imports, 7 the audit
-- ARGV 1 an id for the change, 2 the author, 3 the operation, 4 the key or account,
--      5 its expiry or its plan, 6 its revocation or its limit; '' keeps the present value
-- Returns the version afterwards; 0 if there is no such key, or if its import is not committed. If
-- an import is about to create this account, returns 'busy' or, if the import was abandoned,
-- 'abandoned', each with the import.

local meta, keys, accounts, changed, imports = KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6]
local audit, author = KEYS[7], ARGV[2]
local operation, name, end_or_plan, revoked_or_limit = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- All reads and checks come before the first write: a script that fails is not rolled back.
local hash, row, member, before
if operation == 'set_key_end' then
    local known = redis.call('HGET', keys, name)
    if not known then return 0 end
    local key, status = read_live_key(imports, known)
    if status == 'damaged' then
        return redis.error_reply('DAMAGED key ' .. name .. ': it admits no request')
    end
    if not key then return 0 end
    if end_or_plan ~= '' and (key[2] == '-' or tonumber(end_or_plan) < tonumber(key[2])) then
        key[2] = end_or_plan
    end
    if revoked_or_limit ~= '' and key[3] == '-' then key[3] = revoked_or_limit end
    row = table.concat(key, ' ')
    hash, member, before = keys, 'key:' .. name, without_import(known)
elseif operation == 'set_account' then
    local stored = redis.call('HGET', accounts, name)
    local known = stored or '- - null'
    local row_import, limit, plan = string.match(known, '^(%S+) (%S+) (.+)$')
    local is_whole = row_import and import_status(imports, row_import) ~= 'damaged' and
        (limit == '-' or limit == 'unlimited' or string.match(limit, '^%d+$')) and
        (plan == 'null' or string.match(plan, '^".*"$'))
    before = stored and is_whole and without_import(stored) or ''
    -- An unreadable account is created again.
    if not is_whole then row_import, limit, plan = '-', '-', 'null' end
    local status = import_status(imports, row_import)
    if status ~= 'live' then return {status, row_import} end
    if end_or_plan ~= '' then plan = end_or_plan end
    if revoked_or_limit ~= '' then limit = revoked_or_limit end
    hash, row, member = accounts, table.concat({row_import, limit, plan}, ' '), 'account:' .. name
end

if not row then
    prove_rights()
    redis.call('HSETNX', meta, 'store_id', ARGV[1])
    if redis.call('HSETNX', meta, 'version', 1) == 1 then
        record_change(audit, author, 'store.init', 'the store', 'json', '', '')
    end
    return tonumber(redis.call('HGET', meta, 'version'))
end
local version = next_version(meta, changed, ARGV[1])
if hash == keys then
    record_change(audit, author, 'key.revoke', name, 'key', before, without_import(row))
else
    record_change(audit, author, 'account.set', name, 'account', before, without_import(row))
end
-- The row comes after its change: if the user lacks a right, no row is left without its change.
redis.call('ZADD', changed, version, member)
redis.call('HSET', hash, name, row)
return version
