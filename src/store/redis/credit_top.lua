-- Adds look-ups to the top list; each dedup hash counts once on its day: the operation
-- `add_credits`.
--
-- KEYS 1 the rows, each "count second account,account,…", 2 the dedup hashes counted on the day
-- ARGV 1 the half-life in seconds, 2 seconds for which dedup hashes are kept, 3 the most accounts
--      kept with a row, 4 the number of evicted rows, and their names; then for each credit: its
--      name, the initial count of a new row, its second, the number of dedup hashes, and for each
--      the dedup hash and the hash of the account
-- Returns the credited rows. Dedup hashes have 64 bits and stay texts, because a Lua number has 53.

local half_life, max_accounts = tonumber(ARGV[1]), tonumber(ARGV[3])
local at = 4
local function next_argument()
    at = at + 1
    return ARGV[at - 1]
end
for _ = 1, tonumber(next_argument()) do redis.call('HDEL', KEYS[1], next_argument()) end

local rows = {}
while at <= #ARGV do
    local name, base, second = next_argument(), tonumber(next_argument()), tonumber(next_argument())
    local known = redis.call('HGET', KEYS[1], name)
    local count, last, accounts = base, second, {}
    -- A row that riskgate did not write counts as none.
    local known_count, known_last, known_accounts = string.match(known or '', '^(%S+) (%d+) ?([%d,]*)$')
    if tonumber(known_count) and tonumber(known_count) < math.huge and #known_last < 16 then
        count, last = tonumber(known_count), tonumber(known_last)
        for account in string.gmatch(known_accounts, '%d+') do accounts[#accounts + 1] = account end
    end
    local is_counted = {}
    for _, account in ipairs(accounts) do is_counted[account] = true end
    local new = 0
    for _ = 1, tonumber(next_argument()) do
        local dedup_hash, account = next_argument(), next_argument()
        if redis.call('SADD', KEYS[2], dedup_hash) == 1 then
            new = new + 1
            if #accounts < max_accounts and not is_counted[account] then
                accounts[#accounts + 1], is_counted[account] = account, true
            end
        end
    end
    count = count * 2 ^ (-math.max(0, second - last) / half_life) + new
    last = math.max(last, second)
    local row = string.format('%.17g %.0f %s', count, last, table.concat(accounts, ','))
    redis.call('HSET', KEYS[1], name, row)
    rows[#rows + 1] = row
end
redis.call('EXPIRE', KEYS[2], ARGV[2])
return rows
