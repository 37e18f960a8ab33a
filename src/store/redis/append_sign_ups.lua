-- Appends sign-ups, and deletes old ones: the operation `append_sign_ups`. A script that was sent
-- before a deletion may arrive after it. So the script leaves out a sign-up whose inbox was deleted
-- at its time or later, by an entry that the caller has not read.
--
-- KEYS 1 a stream: each sign-up with its time in the field `at`, and its `pseudonyms`
-- ARGV 1 how many entries to keep: those written last,
--      2 and 3 the earliest and the latest Unix second that an entry may have; empty if no entry
--      may be deleted by time, 4 how many of the oldest entries may be deleted by time,
--      5 the number of the last entry that the caller has read; then the time and pseudonyms of
--      each sign-up
--
-- The last entry stays, because readers go on from it.
--
-- Returns the number of the last appended sign-up; nil if the stream has entries that the caller
-- had not read.

-- A user without the right to XDEL fails here, before anything is written. There is no entry 0-1.
redis.call('XDEL', KEYS[1], '0-1')
local stream, earliest, latest = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local number = find_last_number(stream)
-- The first byte of a deletion's pseudonyms. The inbox follows.
local deletion_byte = '\4'
local deleted_at, has_unread = {}, false
if #ARGV > 5 then
    for _, entry in ipairs(read_entries_after(stream, tonumber(ARGV[5]))) do
        has_unread = true
        local time, pseudonyms = tonumber(entry[2][2]), entry[2][4]
        if time and pseudonyms and string.sub(pseudonyms, 1, 1) == deletion_byte then
            local inbox = inbox_of(pseudonyms)
            deleted_at[inbox] = math.max(time, deleted_at[inbox] or time)
        end
    end
end
for at = 6, #ARGV, 2 do
    local time_of_deletion = deleted_at[inbox_of(ARGV[at + 1])]
    if not time_of_deletion or tonumber(ARGV[at]) > time_of_deletion then
        number = number + 1
        append_entry(stream, ARGV[1], number, ARGV[at], ARGV[at + 1])
    end
end
if earliest and latest then
    local last_id = string.format('%.0f-0', number)
    for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', ARGV[4])) do
        local time = tonumber(entry[2][2])
        if time and (time < earliest or time > latest) and entry[1] ~= last_id then
            redis.call('XDEL', stream, entry[1])
        end
    end
end
return not has_unread and number or false
