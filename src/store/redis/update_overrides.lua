-- Changes the overrides of one domain: the operation `update_overrides`.
--
-- KEYS 1 metadata of the ring, 2 the overrides, 3 the audit
-- ARGV 1 an id for the change, 2 the author, 3 the operation in the audit, 4 the domain,
--      5 the state before, 6 the state after, both in JSON, 7 how many overrides there may be;
--      for each scope: 8, 11 the field, 9, 12 its value as the caller has read it,
--        10, 13 its new value without the time ('': none), or '=' if it stays
-- Returns 1; 0 if a value has changed since the caller read it; -1 if there would be too many.

local meta, overrides, audit = KEYS[1], KEYS[2], KEYS[3]
local count = redis.call('HLEN', overrides)
for at = 8, #ARGV, 3 do
    local known = redis.call('HGET', overrides, ARGV[at]) or ''
    if known ~= ARGV[at + 1] then return 0 end
    if ARGV[at + 2] ~= '=' then
        count = count + (ARGV[at + 2] == '' and 0 or 1) - (known == '' and 0 or 1)
    end
end
if count > tonumber(ARGV[7]) then return -1 end
prepare_change(meta, ARGV[1])
record_change(audit, ARGV[2], ARGV[3], ARGV[4], 'json', ARGV[5], ARGV[6])
for at = 8, #ARGV, 3 do
    if ARGV[at + 2] == '' then
        redis.call('HDEL', overrides, ARGV[at])
    elseif ARGV[at + 2] ~= '=' then
        redis.call('HSET', overrides, ARGV[at], string.format('%.0f ', believed_now) .. ARGV[at + 2])
    end
end
next_overrides_version(meta, overrides, ARGV[1])
return 1
