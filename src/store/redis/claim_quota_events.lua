-- Claims quota events that are due: the operation `claim_quota_events`.
--
-- KEYS 1 a hash: the text of each event by its key, 2 a sorted set: the pending events, with the
--      second at which each is due
-- ARGV 1 the present second, 2 no correct event is due after this second, 3 the second at which the
--      claims end, 4 the most events to claim
-- Returns the key and the new text of each event, in turn.

local max = tonumber(ARGV[4])
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, max)
if #due < max then
    local after_latest = '(' .. ARGV[2]
    local ahead = redis.call('ZRANGEBYSCORE', KEYS[2], after_latest, '+inf', 'LIMIT', 0, max - #due)
    for _, key in ipairs(ahead) do due[#due + 1] = key end
end
local claimed = {}
for _, key in ipairs(due) do
    local attempts, rest = string.match(redis.call('HGET', KEYS[1], key) or '', '^p (%d+) (.*)$')
    if attempts then
        local text = string.format('p %.0f %s', tonumber(attempts) + 1, rest)
        redis.call('HSET', KEYS[1], key, text)
        redis.call('ZADD', KEYS[2], ARGV[3], key)
        claimed[#claimed + 1] = key
        claimed[#claimed + 1] = text
    else
        -- riskgate did not write this entry.
        redis.call('ZREM', KEYS[2], key)
    end
end
return claimed
