-- Goes back to a month, if a later one was counted in: the first step of the verb `repair_month`.
--
-- KEYS 1 the ring's mark
-- ARGV 1 the month
-- Answers the latest month as it was, -1 for none.

local known = redis.call('HGET', KEYS[1], 'month')
-- One that is none was never counted in.
local was = known and string.match(known, '^%d+$') and tonumber(known) or -1
if was > tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'month', ARGV[1]) end
return was
