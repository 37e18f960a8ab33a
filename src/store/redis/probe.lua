-- Identifies the store, and starts a recovery of all accounts if the store may have lost data: the
-- operation `probe`.
--
-- KEYS 1 metadata of the ring, 2 a key that exists while all accounts recover
-- ARGV 1 the incarnation of the server: its run id and replication id,
--      2 the beginning of its data that the node knows from its last probe ('': none),
--      3 the beginning to store if the data has none,
--      4 the latest month that the node counts in, 5 the recovery period in ms,
--      6 the id of the store that the node's keys are from ('': not known)
-- Returns the store's id ('' without one), the beginning of its data, the ms left to recover, and
-- why the server refuses writes ('': it does not). Writes nothing to another store than that of the
-- keys.

local read = redis.call('HMGET', KEYS[1], 'life', 'began', 'store_id', 'month')
local life, began, store_id = read[1], read[2], read[3] or ''
if ARGV[6] ~= '' and store_id ~= '' and store_id ~= ARGV[6] then return {store_id, '', 0, ''} end
-- An unreadable beginning counts as none.
if began and not string.match(began, '^%x+@%d+%.%d+$') then began = nil end
local month = read[4] and string.match(read[4], '^%d+$') and tonumber(read[4]) or -1
local was_restarted = life and life ~= ARGV[1]
-- If the beginning differs from what the node knows, the data was lost, even if the incarnation is
-- the same: another node, which knew no earlier data, may have probed first and set both.
local was_replaced = ARGV[2] ~= '' and began ~= ARGV[2]
if life and began then
    -- The Redis key exists, so this write changes nothing. If the server refuses writes, it fails,
    -- and the script writes nothing else.
    local written = redis.pcall('SET', KEYS[1], '', 'NX')
    if type(written) == 'table' and written.err then
        return {store_id, began, math.max(0, redis.call('PTTL', KEYS[2])), written.err}
    end
end
if was_restarted or was_replaced then
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
    -- More is left than the whole period: the server's clock was set back meanwhile.
    redis.call('SET', KEYS[2], '1', 'PX', ARGV[5])
    recovery_ms = tonumber(ARGV[5])
end
return {store_id, began, math.max(0, recovery_ms), ''}
