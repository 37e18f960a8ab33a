-- Replaces the inbox secret: a step of the operation `keep_inbox_secret`.
--
-- KEYS 1 a hash: the secret in the field `secret`
-- ARGV 1 the secret that the caller has read, empty if there was none, 2 the one to store
-- Returns 1, or 0 if there is another secret than the caller has read.

if (redis.call('HGET', KEYS[1], 'secret') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'secret', ARGV[2])
return 1
