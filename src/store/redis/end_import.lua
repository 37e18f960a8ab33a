-- Ends an import: commits it, so that all its rows take effect at once, or clears a page of them.
--
-- KEYS 1 metadata of the ring, 2 keys, 3 digests, 4 accounts, 5 changes, 6 imports, 7 the audit
-- ARGV 1 an id for the change, 2 the author, 3 the import, 4 'commit' or 'clear', 5 rows in a page,
--      6 how many keys the import has, in words, 7 what the audit says of them, in JSON
-- Returns the version, or the number of rows that were cleared.

local meta, keys, digests, accounts, changed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local imports, import = KEYS[6], ARGV[3]
local known = redis.call('HGET', imports, import)
local number, held_until, version = string.match(known or '', '^(%d+) (%d+) (%d+)$')

if ARGV[4] == 'commit' then
    if import_status(imports, import) ~= 'busy' then
        return redis.error_reply('LATE: the import took too long and no longer reserves its names')
    end
    local version = next_version(meta, changed, ARGV[1])
    record_change(KEYS[7], ARGV[2], 'key.import', ARGV[6], 'json', '', ARGV[7])
    redis.call('HSET', imports, import, string.format('%s %s %.0f', number, held_until, version))
    return version
end

-- A committed import stays.
if not number or version ~= '0' then return 0 end
local score = '-' .. number
local members = redis.call('ZRANGEBYSCORE', changed, score, score, 'LIMIT', 0, ARGV[5])
-- Marks the import as abandoned, so that it can't be committed any more.
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
end
return #members
