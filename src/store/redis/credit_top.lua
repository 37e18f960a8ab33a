-- Counts look-ups for the top list, each mark once on its day: the verb `credit_top`.
--
-- KEYS 1 the rows, each "count second account,account,…", 2 the marks counted on the day
-- ARGV 1 half-life in seconds, 2 seconds for which marks are kept, 3 accounts kept with a row,
--      4 how many rows are dropped, and their names; then for each credit: name, base, second,
--      number of marks, and of each the mark and the account
-- Answers the rows as they now stand. Marks have 64 bits: they stay texts, a Lua number has 53.

local half_life, max_accounts = tonumber(ARGV[1]), tonumber(ARGV[3])
local at = 4
local function next_word()
    at = at + 1
    return ARGV[at - 1]
end
for _ = 1, tonumber(next_word()) do redis.call('HDEL', KEYS[1], next_word()) end

local rows = {}
while at <= #ARGV do
    local name, base, second = next_word(), tonumber(next_word()), tonumber(next_word())
    local known = redis.call('HGET', KEYS[1], name)
    local count, last, accounts = base, second, {}
    -- A row that is none of ours counts from nothing again.
    local known_count, known_last, known_accounts = string.match(known or '', '^(%S+) (%d+) ?([%d,]*)$')
    if tonumber(known_count) and tonumber(known_count) < math.huge and #known_last < 16 then
        count, last = tonumber(known_count), tonumber(known_last)
        for account in string.gmatch(known_accounts, '%d+') do accounts[#accounts + 1] = account end
    end
    local is_behind = {}
    for _, account in ipairs(accounts) do is_behind[account] = true end
    local new = 0
    for _ = 1, tonumber(next_word()) do
        local mark, account = next_word(), next_word()
        if redis.call('SADD', KEYS[2], mark) == 1 then
            new = new + 1
            if #accounts < max_accounts and not is_behind[account] then
                accounts[#accounts + 1], is_behind[account] = account, true
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
