-- Makes the staged keys and accounts the ring of an empty store: the last step of the operation
-- `fill_empty_store`.
--
-- KEYS 1 metadata of the ring, 2 keys, 3 digests, 4 accounts, 5 changes, 6 imports, 7 the audit,
--      8-11 the staged counterparts of 2-5
-- ARGV 1 an id for the change, 2 the author, 3 the month of the totals,
--      4 and 5 how many keys and accounts were staged, 6 what the audit says of them, in JSON
-- Returns the version that it leads to; 0 if the store is no longer empty.

local meta = KEYS[1]
for at = 2, 5 do
    if redis.call('EXISTS', KEYS[at]) == 1 then return 0 end
end
local keys, accounts = tonumber(ARGV[4]), tonumber(ARGV[5])
local is_complete = redis.call('HLEN', KEYS[8]) == keys and redis.call('HLEN', KEYS[9]) == keys
    and redis.call('HLEN', KEYS[10]) == accounts
    and redis.call('ZCARD', KEYS[11]) == keys + accounts
if not is_complete then return redis.error_reply('LOST a part of the copy before it was complete') end

local version = next_version(meta, ARGV[1])
record_change(KEYS[7], ARGV[2], 'store.fill', 'the store', 'json', '', ARGV[6])
local month = redis.call('HGET', meta, 'month')
if tonumber(ARGV[3]) > (month and string.match(month, '^%d+$') and tonumber(month) or -1) then
    redis.call('HSET', meta, 'month', ARGV[3])
end
-- All changes were staged with the score 1. Renaming a key to itself first makes the script fail
-- for a user without that permission, before any staged key gets its final name.
if keys + accounts > 0 then
    redis.call('RENAME', KEYS[11], KEYS[11])
    redis.call('ZUNIONSTORE', KEYS[11], 1, KEYS[11], 'WEIGHTS', version)
end
for at = 8, 11 do redis.call('PERSIST', KEYS[at]) end
for at = 8, 11 do
    if redis.call('EXISTS', KEYS[at]) == 1 then redis.call('RENAME', KEYS[at], KEYS[at - 6]) end
end
return version
