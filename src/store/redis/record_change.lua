-- Appends a record of a change outside the store, and remembers the state of the changed source:
-- the operations `record_change` and `record_source_state`.
--
-- KEYS 1 the audit, 2 a hash: the state of each source by its subject
-- ARGV 1 the author, 2 the operation, 3 the target, 4 the state before, 5 the state after,
--      6 until when the caller waits, in Unix milliseconds: a server that hung must not record a
--        change which the caller has not made;
--      if a source changed: 7 its subject, 8 its subject without the machine, 9 its new text; for
--      `record_source_state`: 10 its text as the caller has read it ('': none), 11 whether it
--      differs from the state before (0: no, or there was none; 1: yes), 12 as 10, of the subject
--      without the machine
-- Returns 1; 0 if the text of the source has changed since the caller read it.

local subject, shared_subject, text, known = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local seconds, micros = unpack(redis.call('TIME'))
if tonumber(seconds) * 1000 + math.floor(tonumber(micros) / 1000) > tonumber(ARGV[6]) then
    return redis.error_reply('LATE: the caller no longer waits')
end
if known and (redis.call('HGET', KEYS[2], subject) or '') ~= known then return 0 end
if known == '' and (redis.call('HGET', KEYS[2], shared_subject) or '') ~= ARGV[12] then return 0 end
if ARGV[11] ~= '0' then
    record_change(KEYS[1], ARGV[1], ARGV[2], ARGV[3], 'json', ARGV[4], ARGV[5])
end
if subject then redis.call('HSET', KEYS[2], subject, text, shared_subject, text) end
return 1
