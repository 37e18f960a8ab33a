-- Reads the state of the keys and accounts at one moment: the operation `reading the key version`. It
-- is a script and no transaction, because a server whose memory is full queues no command.
--
-- KEYS 1 metadata of the ring, 2 keys, 3 digests, 4 accounts, 5 changes, 6 imports
-- ARGV 1 the version after which the caller reads changes
-- Returns the store's id, the version, its change and the change of ARGV 1 (nil: none), then how many
-- keys, digests, accounts and changes there are, and the imports.

return {
    redis.call('HMGET', KEYS[1], 'store_id', 'version', 'history', 'change:' .. ARGV[1]),
    redis.call('HLEN', KEYS[2]), redis.call('HLEN', KEYS[3]), redis.call('HLEN', KEYS[4]),
    redis.call('ZCARD', KEYS[5]), redis.call('HGETALL', KEYS[6]),
}
