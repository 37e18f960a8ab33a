-- Lowers the store's latest month to the given month, if it is later: the first step of the
-- operation `repair_month`.
--
-- KEYS 1 metadata of the ring, 2 the audit
-- ARGV 1 the month, 2 the author, 3 what the audit says of the month after, in JSON
-- Returns the latest month before, or -1 if there was none.

local known = redis.call('HGET', KEYS[1], 'month')
-- Without a value, or with one that is not a number, no month is known.
local previous = known and string.match(known, '^%d+$') and tonumber(known) or -1
-- A month is counted from January 2000.
local previous_text = previous < 0 and 'null'
    or string.format('"%04d-%02d"', 2000 + math.floor(previous / 12), previous % 12 + 1)
record_change(KEYS[2], ARGV[2], 'store.repair_month', 'the store', 'json',
    '{"month":' .. previous_text .. '}', ARGV[3])
if previous > tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'month', ARGV[1]) end
-- The operator vouches for the clocks, and not for what a gateway believed.
redis.call('HDEL', KEYS[1], 'time')
return previous
