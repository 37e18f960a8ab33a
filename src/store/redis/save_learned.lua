-- Saves DNS findings: the operation `save_learned`.
--
-- KEYS 1 a hash, "until mx" by name, and the newest version under `version`, which is no name,
--      2 the names by the version that they were written with
-- ARGV 1 the most names to keep, those written last; then the name and text of each finding

local version = tonumber(redis.call('HGET', KEYS[1], 'version') or 0) or 0
for at = 2, #ARGV, 2 do
    version = version + 1
    redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
    redis.call('ZADD', KEYS[2], version, ARGV[at])
end
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version))
local surplus = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[1])
-- At most as many as arguments, so that one script does not block the server for long.
surplus = math.min(surplus, #ARGV)
if surplus > 0 then
    local oldest = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '+inf', 'LIMIT', 0, surplus)
    for _, name in ipairs(oldest) do
        redis.call('HDEL', KEYS[1], name)
        redis.call('ZREM', KEYS[2], name)
    end
end
return redis.status_reply('OK')
