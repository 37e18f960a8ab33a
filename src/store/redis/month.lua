-- Goes back to a month, if a later one was counted in: the first step of the verb `repair_month`.
--
-- KEYS 1 the ring's mark
-- ARGV 1 the month
-- Answers the latest month as it was, -1 for none.

local was = tonumber(redis.call('HGET', KEYS[1], 'month') or -1)
if was > tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'month', ARGV[1]) end
return was
