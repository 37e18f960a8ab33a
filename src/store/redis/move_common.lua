-- What a copy does at its end, on a server and on each server of a Cluster.

local function merge_hash(staged, name)
    local cursor = '0'
    repeat
        local page = redis.call('HSCAN', staged, cursor, 'COUNT', 1000)
        cursor = page[1]
        for at = 1, #page[2], 2 do redis.call('HSET', name, page[2][at], page[2][at + 1]) end
    until cursor == '0'
end

-- Gives a staged Redis key its final name. KIND says what happens to a Redis key of the final name:
-- see `OnExistingKey` in fill.rs. With the TTL '0', the Redis key never expires.
local function move_staged_key(staged, kind, ttl, name)
    if redis.call('EXISTS', staged) == 0 then return end
    if kind == 'hash' and redis.call('EXISTS', name) == 1 then
        merge_hash(staged, name)
        redis.call('UNLINK', staged)
    elseif kind == 'sorted_set' and redis.call('EXISTS', name) == 1 then
        redis.call('ZUNIONSTORE', name, 2, name, staged, 'AGGREGATE', 'MAX')
        redis.call('UNLINK', staged)
    else
        redis.call('RENAME', staged, name)
    end
    if ttl == '0' then redis.call('PERSIST', name) else redis.call('EXPIRE', name, ttl) end
end

