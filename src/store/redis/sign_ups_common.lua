-- Functions that the scripts about sign-ups share; this file is put in front of each of them.

-- Returns the last number that an entry of the stream has had. If somebody has deleted the newest
-- entries, their ids can't be used again. Without the right to XINFO, the number follows from the
-- last entry alone.
local function find_last_number(stream)
    local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
    local number = last and tonumber(string.match(last[1], '^%d+')) or 0
    local info = redis.pcall('XINFO', 'STREAM', stream)
    for at = 1, #info, 2 do
        if info[at] == 'last-generated-id' then
            number = math.max(number, tonumber(string.match(info[at + 1], '^%d+')))
        end
    end
    return number
end

-- Appends an entry. Its id is its number, so no clock changes the order.
local function append_entry(stream, max_entries, number, time, pseudonyms)
    redis.call('XADD', stream, 'MAXLEN', max_entries, string.format('%.0f-0', number), 'at', time,
        'pseudonyms', pseudonyms)
end

-- Returns the entries behind the one with this number.
local function read_entries_after(stream, number)
    return redis.call('XRANGE', stream, string.format('%.0f-0', number + 1), '+')
end

local function inbox_of(pseudonyms) return string.sub(pseudonyms, 2, 17) end

