-- One statement of one node about one account and month, and the word on it: the verb `state`.
--
-- KEYS 1 the account's numbers of the month: a field for each node ("sequence leased spent"), their
--        sums, and how often they changed
--      2 there while the account settles after a loss
-- ARGV 1 node, 2 sequence, 3 target, 4 floor, 5 spent, 6 limit (-1: none),
--      7-10 what the node knows: sequence, revision, leased and spent of all,
--      11 ms that the node wants the account to settle, 12 ms that recovering takes,
--      13 seconds for which the numbers are kept, 14 1 if their month is over
-- Answers own leased, leased and spent of the others, revision, 1 while recovering, and a sum by which
-- an answer that was harmed on its way, or is one to something else, is known. Numbers that are none
-- of ours are the error DAMAGED: the account's trouble alone.

local key, recovering_key, node = KEYS[1], KEYS[2], ARGV[1]
local sequence, target, floor, spent, limit = tonumber(ARGV[2]), tonumber(ARGV[3]),
    tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local known_sequence, known_revision = tonumber(ARGV[7]), tonumber(ARGV[8])

local function reply(...)
    local parts, sum = {...}, sequence % 65521
    for at, part in ipairs(parts) do sum = sum + (2 * at + 1) * (part % 65521) end
    parts[#parts + 1] = sum % 65521
    return parts
end

local read = redis.call('HMGET', key, node, 'leased', 'spent', 'revision', 'base', 'claim')
-- A whole number that Lua holds exactly, up to 2^53; nothing if it is none.
local function number(text)
    local value = string.match(text or '0', '^%d+$') and tonumber(text or 0)
    return value and value <= 9007199254740992 and value
end
local sequence_text, leased_text, spent_text = string.match(read[1] or '0 0 0', '^(%d+) (%d+) (%d+)$')
local claim_leased, claim_spent = string.match(read[6] or '0 0', '^(%d+) (%d+)$')
local own_sequence, own_leased, own_spent =
    sequence_text and number(sequence_text), number(leased_text), number(spent_text)
local all_leased, all_spent = number(read[2]), number(read[3])
local revision, base = number(read[4]), number(read[5])
claim_leased, claim_spent = claim_leased and number(claim_leased), number(claim_spent)
local is_ours = own_sequence and own_leased and own_spent and all_leased and all_spent and revision
    and base and claim_leased and claim_spent and all_leased >= own_leased and all_spent >= own_spent
if not is_ours then return redis.error_reply('DAMAGED numbers') end

-- What we acknowledged before is not here: something was lost.
local lost = own_sequence < known_sequence or revision < known_revision
local recovery_ms = redis.call('PTTL', recovering_key)
if recovery_ms > tonumber(ARGV[12]) then
    -- The server's clock was set back meanwhile.
    redis.call('SET', recovering_key, '1', 'PX', ARGV[12])
end
local recovering = recovery_ms > 0
local wait = math.max(tonumber(ARGV[11]), lost and tonumber(ARGV[12]) or 0)
local starts_recovery = lost or (wait > 0 and not recovering)

if not recovering and claim_leased > 0 then
    -- The time to restate is over. What was known and nobody has restated belongs to nodes that
    -- are no more; it stays counted.
    all_leased = math.max(all_leased, claim_leased)
    all_spent = math.max(all_spent, claim_spent)
    claim_leased, claim_spent = 0, 0
end
if starts_recovery and not recovering then base = revision end
recovering = recovering or starts_recovery
if recovering and (known_revision > base or own_sequence < known_sequence) then
    claim_leased = math.max(claim_leased, tonumber(ARGV[9]))
    claim_spent = math.max(claim_spent, tonumber(ARGV[10]))
end

if recovering and not lost and claim_leased > 0 and sequence > own_sequence then
    -- Admitted meanwhile, without our word: nobody can have known of it before the loss.
    claim_leased = claim_leased + math.max(0, floor - own_leased)
end

-- What is learned from here while it settles is no knowledge from before the loss.
local visible_revision = recovering and base or revision
if sequence <= own_sequence then
    return reply(own_leased, all_leased - own_leased, all_spent - own_spent, visible_revision, recovering and 1 or 0)
end

-- The rule: as far as the sum stays within the limit, but what may be spent already stands.
local others_leased, others_spent = all_leased - own_leased, all_spent - own_spent
local own = floor
if not recovering then
    local room = limit < 0 and target or math.max(0, limit - others_leased)
    own = math.max(floor, math.min(target, room))
end
local whole = '%.0f'
redis.call('HSET', key,
    node, string.format('%.0f %.0f %.0f', sequence, own, spent),
    'leased', string.format(whole, others_leased + own),
    'spent', string.format(whole, others_spent + spent),
    'revision', string.format(whole, revision + 1),
    'base', string.format(whole, base),
    'claim', string.format('%.0f %.0f', claim_leased, claim_spent))
if starts_recovery then redis.call('SET', recovering_key, '1', 'PX', wait) end
if revision == 0 or ARGV[14] == '1' then redis.call('EXPIRE', key, ARGV[13]) end
if not recovering then visible_revision = visible_revision + 1 end
return reply(own, others_leased, others_spent, visible_revision, recovering and 1 or 0)
