-- Takes requests out of the buckets that all nodes share: the operation `charge_rates`.
--
-- KEYS 1 a hash of sets of buckets. A set is packed as `struct` does it: the server's time of its
--      last change in microseconds, a number of 8 bytes, and for each bucket:
--        8 bytes: its id
--        8 bytes: the time that was left at that moment until the bucket is full; below 0, since
--                 when it has been full
--        8 bytes: how long ago the requests began that this time consists of
--        4 bytes: for how long the bucket was full in the second before that, at most
--      The first two times are numbers of nanoseconds, the last one is an integer of microseconds
-- ARGV 1 the seconds after which the hash expires, 2 the most buckets of a set, 3 the server's time
--      to which the times of charges are relative, in microseconds, 0 if that is not known and no
--      charge follows, 4 how much later the caller gives the charges up, in microseconds; then
--      for each set its number, and the number of its charges; for each charge the id of the
--      bucket, and the five times of `RateCharge` in their order
-- Returns the server's time, and for each charge the time until its bucket is full. Returns only
-- the server's time if the caller has given the charges up.
--
-- The server's clock only measures how much time has passed: if it jumps ahead, buckets are full
-- earlier, and if it jumps back, buckets that were changed before are full. The nodes tell what
-- they know of these buckets with their next charges. If a set is read, the buckets that have been
-- full for two seconds are deleted. If a set has no place left, the bucket that would be full
-- soonest is forgotten.

local max_buckets = tonumber(ARGV[2])
-- For how long a full bucket is kept, in nanoseconds: another node may tell requests that came
-- before the bucket was full.
local kept_after_full = 2e9
local second = 1e9
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local set_forms = {}
for count = 0, max_buckets do set_forms[count] = '>d' .. string.rep('c8ddI4', count) end
-- The time since the moment of the charges, or more: a server that hangs runs a script late.
local told_at = tonumber(ARGV[3])
local late = told_at > 0 and math.max(0, now - told_at) * 1000 or 0
-- The caller has told other charges since then. These include what it knows of the given-up ones.
if late > tonumber(ARGV[4]) * 1000 then return { string.format('%.0f', now) } end

local numbers, first_charges, at = {}, {}, 5
while at <= #ARGV do
    numbers[#numbers + 1], first_charges[#first_charges + 1] = ARGV[at], at + 2
    at = at + 2 + 6 * tonumber(ARGV[at + 1])
end
local texts = redis.call('HMGET', KEYS[1], unpack(numbers))

-- Returns the buckets of a set, each as an id and its three times in nanoseconds, one behind the
-- other.
local function read_buckets(text)
    local buckets, form = {}, text and set_forms[(#text - 8) / 28]
    -- What riskgate did not write has no buckets.
    if not form then return buckets end
    local read = { struct.unpack(form, text) }
    -- After a jump back, nobody knows how much time has passed. A client must not wait longer.
    if not (read[1] <= now) then return buckets end
    local passed = (now - read[1]) * 1000
    -- The last value is the position behind the text.
    for place = 2, #read - 4, 4 do
        local left, count = read[place + 1] - passed, #buckets
        if left > -kept_after_full then
            buckets[count + 1], buckets[count + 2] = read[place], left
            buckets[count + 3] = read[place + 2] + passed
            buckets[count + 4] = math.min(read[place + 3] * 1000, second)
        end
    end
    return buckets
end

-- Returns the place of the bucket, which is a full one if the set did not have it.
local function find_or_add(buckets, id)
    local soonest = 1
    for place = 1, #buckets, 4 do
        if buckets[place] == id then return place end
        if buckets[place + 1] < buckets[soonest + 1] then soonest = place end
    end
    local place = #buckets < 4 * max_buckets and #buckets + 1 or soonest
    buckets[place], buckets[place + 1], buckets[place + 2], buckets[place + 3] = id, false, 0, 0
    return place
end

-- Charges the bucket at this place, and returns the time until the bucket is full. This time may be
-- too short, and is never too long. `began_ago` is how long ago the requests began that the time
-- left consists of. Nodes tell their requests in any order. A request after that moment adds the
-- whole time that it needs to refill. An earlier request refilled as long as the bucket was full,
-- and adds what was left of it then. No time counts twice: what refilled in it shortens
-- `full_before`. So the error is at most what refills in a second, however many requests come.
local function charge_bucket(buckets, place, refill, first_age, node_left, node_not_full_for, most)
    local left, began_ago, full_before = unpack(buckets, place + 1, place + 3)
    first_age = first_age + late
    -- What only the node knows: the server has lost it, or never got it.
    local own_left, own_began_ago = node_left - late, node_not_full_for + late
    local own_not_full_for = own_began_ago
    if own_left <= 0 then
        own_left, own_began_ago, own_not_full_for = refill - first_age, first_age, 0
    end
    local new_left, new_began_ago, new_full_before = own_left, own_began_ago, second
    if left then
        local refilled = math.max(0, first_age - began_ago)
        -- If the requests are told later than a second, the bucket may have been full for longer.
        if first_age <= second then refilled = math.min(refilled, full_before) end
        local total = left + math.max(0, refill - refilled)
        if total >= own_left then
            new_left, new_began_ago = total, began_ago
            if refill > refilled then new_began_ago = math.max(began_ago, first_age) end
        elseif left > 0 then
            new_began_ago = began_ago
        end
        if left > 0 then new_began_ago = math.max(new_began_ago, own_not_full_for) end
        new_full_before = math.min(math.max(0, full_before + new_left - left - refill), second)
    end
    new_left = math.min(new_left, most)
    buckets[place + 1], buckets[place + 2] = new_left, new_began_ago
    buckets[place + 3] = new_full_before
    return math.max(0, new_left)
end

local written, emptied, replies = {}, {}, { string.format('%.0f', now) }
for set, number in ipairs(numbers) do
    local buckets, first = read_buckets(texts[set]), first_charges[set]
    for charge = first, first + 6 * tonumber(ARGV[first - 1]) - 6, 6 do
        local place, times = find_or_add(buckets, ARGV[charge]), {}
        for time = 1, 5 do times[time] = tonumber(ARGV[charge + time]) end
        replies[#replies + 1] = string.format('%.0f', charge_bucket(buckets, place, unpack(times)))
    end
    if #buckets > 0 then
        for place = 4, #buckets, 4 do buckets[place] = math.ceil(buckets[place] / 1000) end
        written[#written + 1] = number
        written[#written + 1] = struct.pack(set_forms[#buckets / 4], now, unpack(buckets))
    elseif texts[set] then
        emptied[#emptied + 1] = number
    end
end
if #emptied > 0 then redis.call('HDEL', KEYS[1], unpack(emptied)) end
if #written > 0 then
    redis.call('HSET', KEYS[1], unpack(written))
    redis.call('EXPIRE', KEYS[1], ARGV[1])
end
return replies
