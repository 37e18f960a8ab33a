-- Who the store is, and whether all accounts settle after a loss: the verb `pulse`.
--
-- KEYS 1 the ring's mark, 2 there while all accounts settle
-- ARGV 1 this life of the server, 2 the beginning of its data that the node knows ('': none),
--      3 the beginning that it has from now on if it has none,
--      4 the latest month that the node counts in, 5 ms that recovery takes
-- Answers the store's id ('' without one), its beginning and the ms for which it settles.

local read = redis.call('HMGET', KEYS[1], 'life', 'began', 'store_id', 'month')
local life, began, store_id = read[1], read[2], read[3] or ''
-- One that is none is as none: the beginning is a server's run and a second.
if began and not string.match(began, '^%x+@%d+%.%d+$') then began = nil end
local month = read[4] and string.match(read[4], '^%d+$') and tonumber(read[4]) or -1
local another_life = life and life ~= ARGV[1]
-- Whoever came first after the loss may have known nothing of what was here before.
local emptied = ARGV[2] ~= '' and began ~= ARGV[2]
if another_life or emptied then
    redis.call('SET', KEYS[2], '1', 'PX', ARGV[5])
end
if life ~= ARGV[1] then redis.call('HSET', KEYS[1], 'life', ARGV[1]) end
if not began then
    began = ARGV[3]
    redis.call('HSET', KEYS[1], 'began', began)
end
if tonumber(ARGV[4]) > month then redis.call('HSET', KEYS[1], 'month', ARGV[4]) end
local recovery_ms = redis.call('PTTL', KEYS[2])
if recovery_ms > tonumber(ARGV[5]) then
    -- The server's clock was set back meanwhile.
    redis.call('SET', KEYS[2], '1', 'PX', ARGV[5])
    recovery_ms = tonumber(ARGV[5])
end
return {store_id, began, math.max(0, recovery_ms)}
