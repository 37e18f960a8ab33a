-- Deletes fields of a hash that are past their time, from one page of the hash: the operation
-- `delete_expired_rows`.
--
-- KEYS 1 a hash: each value begins with a Unix second and a blank. A value without these stays.
--      2 if there is one, a sorted set that has the names of the fields as well
-- ARGV 1 the cursor of the page, 2 the latest Unix second of the fields to delete, 3 about how many
--      fields a page has
-- Returns the cursor of the next page; 0 after the last one.

local latest = tonumber(ARGV[2])
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[3])
for at = 1, #page[2], 2 do
    local name, second = page[2][at], string.match(page[2][at + 1], '^(%-?%d+) ')
    if second and tonumber(second) <= latest then
        -- A user without the right to ZREM fails here, before anything is deleted.
        if KEYS[2] then redis.call('ZREM', KEYS[2], name) end
        redis.call('HDEL', KEYS[1], name)
    end
end
return page[1]
