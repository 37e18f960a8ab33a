-- Reads the version of the overrides and counts them at one moment: the operation `reading the
-- overrides`. For the reason, see `read_ring_state.lua`.
--
-- KEYS 1 metadata of the ring, 2 overrides
-- Returns the store's id and the version (nil: none), and how many overrides there are.

return {redis.call('HMGET', KEYS[1], 'store_id', 'overrides'), redis.call('HLEN', KEYS[2])}
