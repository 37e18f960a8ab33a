-- The end of an import, one way or the other: all its rows are there at once, or a page of them is
-- cleared away.
--
-- KEYS 1 the mark, 2 keys, 3 digests, 4 accounts, 5 what changed when, 6 imports,
--      7 plans that the import gives to accounts which are there already
-- ARGV 1 an id for the change, 2 the import, 3 'commit' or 'clear', 4 rows in a page
-- Answers the version; or how many rows were cleared away.

local mark, keys, digests, accounts, changed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local imports, plans, import = KEYS[6], KEYS[7], ARGV[2]
local known = redis.call('HGET', imports, import)
local number, held_until, version = string.match(known or '', '^(%d+) (%d+) (%d+)$')

if ARGV[3] == 'commit' then
    if import_status(imports, import) ~= 'busy' then
        return redis.error_reply('LATE: the import took too long and no longer reserves its names')
    end
    local given = redis.call('HGETALL', plans)
    -- First, since not every user may.
    redis.call('DEL', plans)
    local version = next_version(mark, ARGV[1])
    for at = 1, #given, 2 do
        local name = given[at]
        local born, limit = string.match(redis.call('HGET', accounts, name), '^(%S+) (%S+)')
        redis.call('HSET', accounts, name, table.concat({born, limit, given[at + 1]}, ' '))
        redis.call('ZADD', changed, version, 'account:' .. name)
    end
    redis.call('HSET', imports, import, string.format('%s %s %.0f', number, held_until, version))
    return version
end

-- One that was committed stays.
if not number or version ~= '0' then return 0 end
local score = '-' .. number
local members = redis.call('ZRANGEBYSCORE', changed, score, score, 'LIMIT', 0, ARGV[4])
-- From here on it is dead, whatever the clock says.
redis.call('HSET', imports, import, number .. ' 0 0')
for _, member in ipairs(members) do
    local id, account = string.match(member, '^key:(.*)$'), string.match(member, '^account:(.*)$')
    if id then
        local hex = string.match(redis.call('HGET', keys, id) or '', '^%S+ %S+ %S+ (%S+)')
        if hex then redis.call('HDEL', digests, hex) end
        redis.call('HDEL', keys, id)
    elseif account then
        redis.call('HDEL', accounts, account)
    end
    redis.call('ZREM', changed, member)
end
if #members == 0 then
    redis.call('HDEL', imports, import)
    redis.call('DEL', plans)
end
return #members
