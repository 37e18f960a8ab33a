-- Appends a record of a change outside the store, and remembers the state of the changed source:
-- the operations `record_change` and `record_source_state`.
--
-- KEYS 1 the audit, 2 a hash: the state of each source by its subject
-- ARGV 1 the author, 2 the operation, 3 the target, 4 the state before, 5 the state after;
--      if a source changed: 6 its subject, 7 its new text; for `record_source_state`: 8 its text as
--      the caller has read it ('': none)
-- Returns 1; 0 if the text of the source has changed since the caller read it.

local subject, text, known = ARGV[6], ARGV[7], ARGV[8]
if known and (redis.call('HGET', KEYS[2], subject) or '') ~= known then return 0 end
-- The first state of a source is no change.
if known ~= '' then
    record_change(KEYS[1], ARGV[1], ARGV[2], ARGV[3], 'json', ARGV[4], ARGV[5])
end
if subject then redis.call('HSET', KEYS[2], subject, text) end
return 1
