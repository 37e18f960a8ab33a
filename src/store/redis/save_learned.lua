-- Saves DNS facts: the operation `save_dns_facts`.
--
-- KEYS 1 a hash: "expiry mx" by name, and the newest version in the field `version`, which is no
--        domain name
--      2 a sorted set: the names, with the version at which each was written as score
-- ARGV 1 how many names to keep: those written last; then the name and text of each fact

local version = tonumber(redis.call('HGET', KEYS[1], 'version') or 0) or 0
for at = 2, #ARGV, 2 do
    version = version + 1
    redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
    redis.call('ZADD', KEYS[2], version, ARGV[at])
end
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version))
local surplus = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[1])
-- Deletes at most as many names as there are arguments, so that the script does not block the
-- server for long.
surplus = math.min(surplus, #ARGV)
if surplus > 0 then
    local oldest = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '+inf', 'LIMIT', 0, surplus)
    for _, name in ipairs(oldest) do
        redis.call('HDEL', KEYS[1], name)
        redis.call('ZREM', KEYS[2], name)
    end
end
return redis.status_reply('OK')
