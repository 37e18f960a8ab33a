-- Appends a record of a change to the audit. The change itself is in another hash slot.
--
-- KEYS 1 the audit
-- ARGV 1 the author, 2 the operation, 3 the target, 4 the state before, 5 the state after
record_change(KEYS[1], ARGV[1], ARGV[2], ARGV[3], 'json', ARGV[4], ARGV[5])
return 1
