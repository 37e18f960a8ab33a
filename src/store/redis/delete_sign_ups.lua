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

local stream = KEYS[1]
local deletions, is_deleted, first_byte = {}, {}, nil
for at = 6, 5 + ARGV[4] do
    local bytes = string.gsub(ARGV[at], '..', function(digits)
        return string.char(tonumber(digits, 16))
    end)
    deletions[#deletions + 1] = bytes
    is_deleted[inbox_of(bytes)], first_byte = true, string.sub(bytes, 1, 1)
end
local ids, count = {}, 0
for at = 6 + ARGV[4], 5 + ARGV[4] + ARGV[5] do ids[#ids + 1] = ARGV[at] .. '-0' end
for _, entry in ipairs(read_entries_after(stream, tonumber(ARGV[3]))) do
    local bytes = entry[2][4]
    if type(bytes) == 'string' and is_deleted[inbox_of(bytes)] then
        ids[#ids + 1] = entry[1]
        if string.sub(bytes, 1, 1) ~= first_byte then count = count + 1 end
    end
end
local number = find_last_number(stream)
-- The deletions are appended first, so that none of the numbers is that of the last entry.
for _, bytes in ipairs(deletions) do
    number = number + 1
    append_entry(stream, ARGV[1], number, ARGV[2], bytes)
end
for _, id in ipairs(ids) do redis.call('XDEL', stream, id) end
return count
