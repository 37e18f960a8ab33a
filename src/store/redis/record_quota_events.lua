-- Records quota events that the server does not have: the operation `record_quota_events`.
--
-- KEYS 1 a hash: the text of each event by its key, 2 a sorted set: the pending events, with the
--      second at which each is due, 3 a sorted set: the finished events, with their last second
-- ARGV 1 the most pending events, 2 events that were finished before this second are forgotten;
--      then for each event: its key, the second at which it is due, its text
-- Returns how many of the first events the server now has.

-- At most a thousand, so that the script does not block the server for long.
local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. ARGV[2], 'LIMIT', 0, 1000)
for _, key in ipairs(old) do
    redis.call('HDEL', KEYS[1], key)
    redis.call('ZREM', KEYS[3], key)
end
local free_places = tonumber(ARGV[1]) - redis.call('ZCARD', KEYS[2])
local recorded = 0
for at = 3, #ARGV, 3 do
    if not redis.call('HGET', KEYS[1], ARGV[at]) then
        if free_places <= 0 then return recorded end
        free_places = free_places - 1
        redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 2])
        redis.call('ZADD', KEYS[2], ARGV[at + 1], ARGV[at])
    end
    recorded = recorded + 1
end
return recorded
