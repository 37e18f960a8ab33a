-- Applies one report of one node about one account and month: the operation `report_leases`.
--
-- KEYS 1 a hash, the account's totals of the month: a field for each node
--        ("sequence leased spent"), the sums over all nodes (leased, spent), and how often the
--        totals changed (revision).
--        For a recovery: the revision when it began (base), the sums that the account has at least
--        (claim, "leased spent"), and by how much the reports since its beginning have changed the
--        sums (changes, "leased spent"). The claim is the highest sums that a node knew before the
--        loss, plus these changes.
--      2 a key that exists while the account recovers from a data loss
--      3 and further: hashes, the account's usage by day of one month each
-- ARGV 1 node, 2 sequence, 3 target, 4 floor, 5 spent, 6 limit (-1: none),
--      7-10 what the node knows: sequence, revision, leased and spent of all,
--      11 ms that the store still recovers, as the node knows from a probe,
--      12 the recovery period in ms,
--      13 seconds for which the totals are kept, 14 '1' if their month is past,
--      15 seconds for which usage by day is kept,
--      16 the node's leased total as last acknowledged,
--      17 and 18 the leased and spent total that the node named last, answered or not;
--      then for each count of usage by day the number of its key in KEYS, its field, and the calls
-- Returns the node's leased total, the leased and the spent total of the others, the revision, 1 if
-- the account recovers (else 0), and a checksum that detects a corrupted reply or the reply to
-- another report. Totals that can't be read give the error DAMAGED; it concerns this account alone.

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

local read = redis.call('HMGET', key, node, 'leased', 'spent', 'revision', 'base', 'claim',
    'changes')
-- An integer that Lua represents exactly, up to 2^53; nil for any other text.
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
local changed_leased, changed_spent = string.match(read[7] or '0 0', '^(%-?%d+) (%-?%d+)$')
changed_leased, changed_spent = tonumber(changed_leased), tonumber(changed_spent)
local is_readable = own_sequence and own_leased and own_spent and all_leased and all_spent and revision
    and base and claim_leased and claim_spent and changed_spent and all_leased >= own_leased and all_spent >= own_spent
if not is_readable then return redis.error_reply('DAMAGED numbers') end

-- The store has lost data if its state is older than what it acknowledged to this node.
local lost = own_sequence < known_sequence or revision < known_revision
local recovery_ms = redis.call('PTTL', recovering_key)
if recovery_ms > tonumber(ARGV[12]) then
    -- More is left than the whole period: the server's clock was set back meanwhile.
    redis.call('SET', recovering_key, '1', 'PX', ARGV[12])
end
local recovering = recovery_ms > 0
local recovery_wait = math.max(tonumber(ARGV[11]), lost and tonumber(ARGV[12]) or 0)
local starts_recovery = lost or (recovery_wait > 0 and not recovering)

if not recovering and claim_leased > 0 then
    -- The recovery is over. If the nodes knew a higher total before the loss than they reported
    -- again, the difference belongs to dead nodes, and stays counted.
    all_leased = math.max(all_leased, claim_leased)
    all_spent = math.max(all_spent, claim_spent)
    claim_leased, claim_spent = 0, 0
end
if starts_recovery and not recovering then
    base, changed_leased, changed_spent = revision, 0, 0
end
recovering = recovering or starts_recovery

-- Returns by how much a total has changed since the sums that nodes knew before the loss. If a
-- report was not answered, the sums may have the total before that report or the total in it: then
-- returns the smaller change, so that no call counts twice.
local function change_of(total, known, reported)
    local low, high = math.min(known, reported), math.max(known, reported)
    return math.max(0, total - high) + math.min(0, total - low)
end
if recovering and sequence > own_sequence then
    local known_leased, known_spent = own_leased, own_spent
    if own_sequence < known_sequence then
        known_leased, known_spent = tonumber(ARGV[16]), tonumber(ARGV[18])
    end
    local leased_change = change_of(floor, known_leased, tonumber(ARGV[17]))
    local spent_change = change_of(spent, known_spent, tonumber(ARGV[18]))
    local has_claim, before_leased, before_spent = claim_leased > 0, 0, 0
    if has_claim then
        before_leased, before_spent = claim_leased - changed_leased, claim_spent - changed_spent
    end
    -- If the store has a later report of this node, the calls that the node knows include this
    -- report already.
    local knows_more = known_revision > base and own_sequence == known_sequence
    if knows_more or own_sequence < known_sequence then
        has_claim = true
        before_leased = math.max(before_leased, tonumber(ARGV[9]) - leased_change)
        before_spent = math.max(before_spent, tonumber(ARGV[10]) - spent_change)
    end
    changed_leased, changed_spent = changed_leased + leased_change, changed_spent + spent_change
    if has_claim then
        claim_leased = math.max(0, before_leased + changed_leased)
        claim_spent = math.max(0, before_spent + changed_spent)
    end
end

-- During the recovery a node gets the revision of its beginning, so that totals that the node
-- learns now do not count as known before the loss.
local visible_revision = recovering and base or revision
if sequence <= own_sequence then
    return reply(own_leased, all_leased - own_leased, all_spent - own_spent, visible_revision, recovering and 1 or 0)
end

-- The same rule as `Grant::decide_leased`: calls are granted as far as the sum of all nodes stays
-- within the limit, but never less than the floor.
local others_leased, others_spent = all_leased - own_leased, all_spent - own_spent
local new_leased = floor
if not recovering then
    local headroom = limit < 0 and target or math.max(0, limit - others_leased)
    new_leased = math.max(floor, math.min(target, headroom))
end
local integer_format = '%.0f'
redis.call('HSET', key,
    node, string.format('%.0f %.0f %.0f', sequence, new_leased, spent),
    'leased', string.format(integer_format, others_leased + new_leased),
    'spent', string.format(integer_format, others_spent + spent),
    'revision', string.format(integer_format, revision + 1),
    'base', string.format(integer_format, base),
    'claim', string.format('%.0f %.0f', claim_leased, claim_spent),
    'changes', string.format('%.0f %.0f', changed_leased, changed_spent))
for at = 19, #ARGV, 3 do
    redis.call('HSET', KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2])
end
for at = 3, #KEYS do redis.call('EXPIRE', KEYS[at], ARGV[15]) end
if starts_recovery then redis.call('SET', recovering_key, '1', 'PX', recovery_wait) end
if revision == 0 or ARGV[14] == '1' then redis.call('EXPIRE', key, ARGV[13]) end
if not recovering then visible_revision = visible_revision + 1 end
return reply(new_leased, others_leased, others_spent, visible_revision, recovering and 1 or 0)
