-- Changes the overrides of several domains, of all or of none: the operation `update_overrides`.
--
-- KEYS 1 metadata of the ring, 2 the overrides, 3 the audit
-- ARGV 1 an id for the change, 2 the author, 3 how many overrides there may be; for each domain:
--      4 the operation in the audit, 5 the domain, 6 the state before, 7 the state after, both in JSON;
--      for each of its two scopes: 8, 11 the field, 9, 12 its value as the caller has read it,
--        10, 13 its new value without the time ('': none), or '=' if it stays
-- Returns 1; 0 if a value has changed since the caller read it; -1 if there would be too many.

local meta, overrides, audit = KEYS[1], KEYS[2], KEYS[3]
local count = redis.call('HLEN', overrides)
for domain = 4, #ARGV, 10 do
    for at = domain + 4, domain + 9, 3 do
        local known = redis.call('HGET', overrides, ARGV[at]) or ''
        if known ~= ARGV[at + 1] then return 0 end
        if ARGV[at + 2] ~= '=' then
            count = count + (ARGV[at + 2] == '' and 0 or 1) - (known == '' and 0 or 1)
        end
    end
end
if count > tonumber(ARGV[3]) then return -1 end
prepare_change(meta, ARGV[1])
for domain = 4, #ARGV, 10 do
    record_change(
        audit, ARGV[2], ARGV[domain], ARGV[domain + 1], 'json', ARGV[domain + 2], ARGV[domain + 3])
    for at = domain + 4, domain + 9, 3 do
        if ARGV[at + 2] == '' then
            redis.call('HDEL', overrides, ARGV[at])
        elseif ARGV[at + 2] ~= '=' then
            local text = string.format('%.0f ', believed_now) .. ARGV[at + 2]
            redis.call('HSET', overrides, ARGV[at], text)
        end
    end
end
next_overrides_version(meta, overrides, ARGV[1])
return 1
