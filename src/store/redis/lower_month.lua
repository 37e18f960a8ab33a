-- Lowers the store's latest month to the given month, if it is later, and records what the
-- operation `repair_month` changes. This script is its first step.
--
-- KEYS 1 metadata of the ring, 2 the audit
-- ARGV 1 the latest month as the caller has read it ('': none), 2 the month, 3 the author,
--      4 and 5 what the audit says of the states before and after, in JSON ('': nothing changes)
-- Returns 1.

local known = redis.call('HGET', KEYS[1], 'month')
-- Without a value, or with one that is not a number, no month is known.
local previous = known and string.match(known, '^%d+$') or ''
if ARGV[1] ~= '' and previous ~= ARGV[1] then return redis.error_reply('CHANGED meanwhile: a node counts') end
if ARGV[5] ~= '' then
    prove_rights()
    -- The next steps of the operation need these rights.
    redis.call('DEL', unused_key)
    redis.call('ZREM', unused_key, '-')
    record_change(KEYS[2], ARGV[3], 'store.repair_month', 'the store', 'json', ARGV[4], ARGV[5])
end
if previous ~= '' and tonumber(previous) > tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], 'month', ARGV[2])
end
-- The operator says that the clocks are right now. What a gateway believed may be wrong.
redis.call('HDEL', KEYS[1], 'time')
return 1
