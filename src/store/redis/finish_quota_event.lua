-- Records the outcome of a claimed quota event: the operation `finish_quota_event`.
--
-- KEYS 1 a hash: the text of each event by its key, 2 a sorted set: the pending events, with the
--      second at which each is due, 3 a sorted set: the finished events, with their last second
-- ARGV 1 the key, 2 the number of the attempt that the caller has claimed, 3 'delivered',
--      'given_up' or 'due', 4 the second of the outcome, or at which the event is due again
-- Returns 1; 0 if another caller has claimed the event since, or if the event is finished.

local key = ARGV[1]
local text = redis.call('HGET', KEYS[1], key) or ''
local attempts, created_at, month = string.match(text, '^p (%d+) (%-?%d+) (%d+) ')
if attempts ~= ARGV[2] then return 0 end
if ARGV[3] == 'due' then
    redis.call('ZADD', KEYS[2], ARGV[4], key)
    return 1
end
redis.call('HSET', KEYS[1], key, table.concat({ARGV[3], attempts, created_at, month, ARGV[4]}, ' '))
redis.call('ZREM', KEYS[2], key)
redis.call('ZADD', KEYS[3], ARGV[4], key)
return 1
