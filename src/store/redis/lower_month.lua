-- Lowers the store's latest month to the given month, if it is later: the first step of the
-- operation `repair_month`.
--
-- KEYS 1 metadata of the ring
-- ARGV 1 the month
-- Returns the latest month before, or -1 if there was none.

local known = redis.call('HGET', KEYS[1], 'month')
-- Without a value, or with one that is not a number, no month is known.
local previous = known and string.match(known, '^%d+$') and tonumber(known) or -1
if previous > tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'month', ARGV[1]) end
return previous
