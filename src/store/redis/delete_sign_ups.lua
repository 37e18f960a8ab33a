-- Deletes the sign-ups of some inboxes, and appends a deletion for each inbox: the operation
-- `delete_sign_ups`.
--
-- KEYS 1 a stream: see append_sign_ups.lua. A deletion has the fields of a sign-up, and in
--        `pseudonyms` a first byte of its own
-- ARGV 1 how many entries to keep: those written last, 2 the time of the deletion,
--      3 the number of the last entry that the caller has read,
--      4 how many deletions follow, 5 how many numbers follow behind them;
--      then the `pseudonyms` of each deletion in hexadecimal, and the numbers to delete
-- Returns how many sign-ups of these inboxes were written after the caller had read. The script
-- deletes these sign-ups as well.

local stream, read_up_to = KEYS[1], tonumber(ARGV[3])
local deletions, is_deleted, first_byte = {}, {}, nil
for at = 6, 5 + ARGV[4] do
    local bytes = string.gsub(ARGV[at], '..', function(digits)
        return string.char(tonumber(digits, 16))
    end)
    deletions[#deletions + 1] = bytes
    is_deleted[string.sub(bytes, 2, 17)], first_byte = true, string.sub(bytes, 1, 1)
end
local ids, count = {}, 0
for at = 6 + ARGV[4], 5 + ARGV[4] + ARGV[5] do ids[#ids + 1] = ARGV[at] .. '-0' end
local number, after = 0, string.format('%.0f-0', read_up_to + 1)
for _, entry in ipairs(redis.call('XRANGE', stream, after, '+')) do
    local bytes = entry[2][4]
    if type(bytes) == 'string' and is_deleted[string.sub(bytes, 2, 17)] then
        ids[#ids + 1] = entry[1]
        if string.sub(bytes, 1, 1) ~= first_byte then count = count + 1 end
    end
end
local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
if last then number = tonumber(string.match(last[1], '^%d+')) end
-- See append_sign_ups.lua.
local info = redis.pcall('XINFO', 'STREAM', stream)
for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then
        number = math.max(number, tonumber(string.match(info[at + 1], '^%d+')))
    end
end
-- The deletions are appended first, so that none of the numbers is that of the last entry.
for _, bytes in ipairs(deletions) do
    number = number + 1
    redis.call('XADD', stream, 'MAXLEN', ARGV[1], string.format('%.0f-0', number),
        'at', ARGV[2], 'pseudonyms', bytes)
end
for _, id in ipairs(ids) do redis.call('XDEL', stream, id) end
return count
