-- Adds the rows of a file of overrides that the store does not have, and remembers the file: the
-- operation `take_over_overrides`.
--
-- KEYS 1 metadata of the ring, 2 the overrides, 3 the audit, 4 the states of sources
-- ARGV 1 an id for the change, 2 the author, 3 the path of the file, 4 what the audit says, in
--      JSON, 5 how many overrides there may be, 6 the subject that names the content of the file,
--      7 a second subject, 8 the state of both, 9 the operation in the audit;
--      10 and further: a field, a blank, and the value without the time
-- Returns how many rows were added; -1 if there would be too many; -2 if the store remembers the
-- file.

local meta, overrides, audit, sources = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('HGET', sources, ARGV[6]) then return -2 end
local new = {}
for at = 10, #ARGV do
    local field, value = string.match(ARGV[at], '^(%S+ %S+) (.*)$')
    if not redis.call('HGET', overrides, field) then new[#new + 1] = {field, value} end
end
if redis.call('HLEN', overrides) + #new > tonumber(ARGV[5]) then return -1 end
prepare_change(meta, ARGV[1])
record_change(audit, ARGV[2], ARGV[9], ARGV[3], 'json', '', ARGV[4])
for _, row in ipairs(new) do
    redis.call('HSET', overrides, row[1], string.format('%.0f ', believed_now) .. row[2])
end
next_overrides_version(meta, overrides, ARGV[1])
redis.call('HSET', sources, ARGV[6], ARGV[8], ARGV[7], ARGV[8])
return #new
