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
if not whole then return redis.error_reply('LOST a part of the copy before it was whole') end

local version = next_version(mark, ARGV[1])
if tonumber(ARGV[2]) > tonumber(redis.call('HGET', mark, 'month') or -1) then
    redis.call('HSET', mark, 'month', ARGV[2])
end
for at = 7, 9 do
    if redis.call('EXISTS', KEYS[at]) == 1 then
        redis.call('RENAME', KEYS[at], KEYS[at - 5])
        redis.call('PERSIST', KEYS[at - 5])
    end
end
-- All were staged with a score of 1.
redis.call('ZUNIONSTORE', KEYS[5], 1, KEYS[10], 'WEIGHTS', version)
redis.call('DEL', KEYS[10])
return version
