-- Lowers the latest month, if a later one was counted in: the first step of `repair_month`.
--
-- KEYS 1 metadata of the ring
-- ARGV 1 the month
-- Returns the latest month before, or -1 if there was none.

local known = redis.call('HGET', KEYS[1], 'month')
-- A value that is no number is no month that was counted in.
local previous = known and string.match(known, '^%d+$') and tonumber(known) or -1
if previous > tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'month', ARGV[1]) end
return previous
