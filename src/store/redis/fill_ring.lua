-- Gives what a copy has staged its final name, on a Cluster only in the slot of the keys: the last
-- step of the operation `fill_empty_store`.
--
-- KEYS 1 metadata of the ring, 2 keys, 3 digests, 4 accounts, 5 changes, 6 imports, 7 the audit,
--      8 a hash: each staged Redis key with "KIND TTL NAME": what to do if the server has a key of
--        the final name, after how many seconds it expires (0: never), and its final name,
--      9 the staged counterpart of 5, 10 that of 7, which has the records of 7 as well,
--      11 the overrides
-- ARGV 1 an id for the change, 2 the author, 3 the month of the totals,
--      4 how many keys and accounts were staged, 5 how many Redis keys were staged,
--      6 what the audit says of the copy, in JSON, 7 the id of the last record of 7 that 10 has,
--      8 how many overrides were staged
-- Returns the new version of the ring; 0 if the store is no longer empty, or if 7 has another last
-- record than ARGV 7.

local meta, moves, changes, audit = KEYS[1], KEYS[8], KEYS[9], KEYS[10]

-- Passes each staged Redis key to `visit`, with what to do with it. HSCAN may return one twice.
local function visit_moves(visit)
    local cursor = '0'
    repeat
        local page = redis.call('HSCAN', moves, cursor, 'COUNT', 1000)
        cursor = page[1]
        for at = 1, #page[2], 2 do
            local kind, ttl, name = string.match(page[2][at + 1], '^(%S+) (%d+) (.*)$')
            visit(page[2][at], kind, ttl, name)
        end
    until cursor == '0'
end

-- All checks come before the first write: a script that fails is not rolled back.
for _, at in ipairs({2, 3, 4, 5, 11}) do
    if redis.call('EXISTS', KEYS[at]) == 1 then return 0 end
end
redis.call('HLEN', meta)
local is_complete, is_empty = redis.call('HLEN', moves) == tonumber(ARGV[5]), true
local wrong_type
visit_moves(function(staged, kind, _, name)
    is_complete = is_complete and redis.call('EXISTS', staged) == 1
    is_empty = is_empty and (kind ~= 'fail' or redis.call('EXISTS', name) == 0)
    -- A Redis key is merged only into one of the same type.
    local length = kind == 'hash' and redis.pcall('HLEN', name)
        or kind == 'sorted_set' and redis.pcall('ZCARD', name)
    if type(length) == 'table' then wrong_type = name end
end)
if redis.call('ZCARD', changes) ~= tonumber(ARGV[4]) then is_complete = false end
if not is_complete then return redis.error_reply('LOST a part of the copy before it was complete') end
if not is_empty then return 0 end
if wrong_type then
    return redis.error_reply('WRONGTYPE the Redis key ' .. wrong_type .. ' has another type')
end
local last = redis.call('XREVRANGE', KEYS[7], '+', '-', 'COUNT', 1)[1]
if (last and last[1] or '') ~= ARGV[7] then return 0 end

-- A user without one of these rights fails here, where this script has changed only staged Redis
-- keys.
-- Renaming a Redis key to itself changes nothing.
redis.call('UNLINK', unused_key)
redis.call('ZUNIONSTORE', unused_key, 1, unused_key)
record_change(audit, ARGV[2], 'store.fill', 'the store', 'json', '', ARGV[6])
redis.call('RENAME', audit, audit)
redis.call('PERSIST', audit)
redis.call('EXPIRE', audit, 3600)

local version = next_version(meta, KEYS[5], ARGV[1])
local month = redis.call('HGET', meta, 'month')
if tonumber(ARGV[3]) > (month and string.match(month, '^%d+$') and tonumber(month) or -1) then
    redis.call('HSET', meta, 'month', ARGV[3])
end
if ARGV[8] ~= '0' then
    local known = redis.call('HGET', meta, 'overrides') or '0 - 0'
    local number = (tonumber(string.match(known, '^(%d+) ')) or 0) + 1
    local text = string.format('%.0f %s %s', number, ARGV[1], ARGV[8])
    redis.call('HSET', meta, 'overrides', text, string.format('override_change:%.0f', number),
        ARGV[1])
end
-- All changes were staged with the score 1.
if ARGV[4] ~= '0' then redis.call('ZUNIONSTORE', changes, 1, changes, 'WEIGHTS', version) end

visit_moves(move_staged_key)
move_staged_key(audit, 'fail', '0', KEYS[7])
redis.call('UNLINK', moves)
return version
