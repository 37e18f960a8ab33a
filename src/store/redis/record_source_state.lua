-- Remembers the state of a source outside the store, and appends a record of what differs from the
-- state before: the operation `record_source_state`.
--
-- KEYS 1 the audit, 2 a hash: the state of each source by its subject
-- ARGV 1 the author, 2 the operation, 3 the target, 4 the state before, 5 the state after,
--      6 the subject of the source, 7 its subject without the machine, 8 its new text, 9 its text
--        as the caller has read it ('': none), 10 whether it differs from the state before (0: no,
--        or there was none; 1: yes), 11 as 9, of the subject without the machine
-- Returns 1; 0 if the text with which the new one is compared has changed since the caller read it.

local subject, shared_subject, text, known = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
if (redis.call('HGET', KEYS[2], subject) or '') ~= known then return 0 end
if known == '' and (redis.call('HGET', KEYS[2], shared_subject) or '') ~= ARGV[11] then return 0 end
if ARGV[10] ~= '0' then
    prove_rights()
    record_change(KEYS[1], ARGV[1], ARGV[2], ARGV[3], 'json', ARGV[4], ARGV[5])
end
redis.call('HSET', KEYS[2], subject, text, shared_subject, text)
return 1
