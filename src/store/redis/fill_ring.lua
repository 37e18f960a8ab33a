-- Makes a staged ring the ring of an empty store: the last step of the verb `fill`.
--
-- KEYS 1 the mark, 2 keys, 3 digests, 4 accounts, 5 what changed when, 6 imports,
--      7-10 the second to the fifth, staged
-- ARGV 1 an id for the change, 2 the month that the numbers are of,
--      3 and 4 how many keys and accounts were staged
-- Answers the version that it leads to; 0 where the store is not empty any more.

local mark = KEYS[1]
for at = 2, 5 do
    if redis.call('EXISTS', KEYS[at]) == 1 then return 0 end
end
local keys, accounts = tonumber(ARGV[3]), tonumber(ARGV[4])
local whole = redis.call('HLEN', KEYS[7]) == keys and redis.call('HLEN', KEYS[8]) == keys
    and redis.call('HLEN', KEYS[9]) == accounts
    and redis.call('ZCARD', KEYS[10]) == keys + accounts
if not whole then return redis.error_reply('LOST a part of the copy before it was complete') end

local version = next_version(mark, ARGV[1])
local month = redis.call('HGET', mark, 'month')
if tonumber(ARGV[2]) > (month and string.match(month, '^%d+$') and tonumber(month) or -1) then
    redis.call('HSET', mark, 'month', ARGV[2])
end
-- All were staged with a score of 1. A user who lacks a right is refused before the first one has
-- its name.
if keys + accounts > 0 then
    redis.call('RENAME', KEYS[10], KEYS[10])
    redis.call('ZUNIONSTORE', KEYS[10], 1, KEYS[10], 'WEIGHTS', version)
end
for at = 7, 10 do redis.call('PERSIST', KEYS[at]) end
for at = 7, 10 do
    if redis.call('EXISTS', KEYS[at]) == 1 then redis.call('RENAME', KEYS[at], KEYS[at - 5]) end
end
return version
