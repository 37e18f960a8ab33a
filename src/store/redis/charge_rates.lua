-- Takes requests out of the buckets that all nodes share: the operation `charge_rates`.
--
-- KEYS 1 a hash of sets of buckets. A set is packed as `struct` does it: the server's time of its
--      last change in microseconds, and for each bucket its id of 8 bytes, the time that was left
--      at that moment until the bucket is full, and how long ago the requests began that this time
--      consists of, both in nanoseconds. Each time is a number of 8 bytes
-- ARGV 1 the seconds after which the hash expires, 2 the most buckets of a set, 3 the server's time
--      to which the times of charges are relative, in microseconds, 0 if that is not known; then
--      for each set its number, and the number of its charges; for each charge the id of the
--      bucket, and the five times of `RateCharge` in their order
-- Returns the server's time, and for each charge the time until its bucket is full.
--
-- The server's clock only measures how much time has passed: if it jumps ahead, buckets are full
-- earlier, and if it jumps back, the time since the last change refills nothing. Buckets that are
-- full are deleted after two seconds. If a set has no place left, the bucket that would be full
-- soonest is forgotten.

local max_buckets = tonumber(ARGV[2])
-- For how long a bucket that is full is kept, in nanoseconds: another node may tell requests that
-- are older than that moment.
local kept_after_full = 2e9
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local set_forms = {}
for count = 0, max_buckets do set_forms[count] = '>d' .. string.rep('c8dd', count) end
-- A server that hangs runs a script late.
local told_at = tonumber(ARGV[3])
local late = told_at > 0 and math.max(0, now - told_at) * 1000 or 0

local numbers, first_charges, at = {}, {}, 4
while at <= #ARGV do
    numbers[#numbers + 1], first_charges[#first_charges + 1] = ARGV[at], at + 2
    at = at + 2 + 6 * tonumber(ARGV[at + 1])
end
local texts = redis.call('HMGET', KEYS[1], unpack(numbers))

-- Returns the buckets of a set, each as an id and its two times, one behind the other.
local function read_buckets(text)
    local buckets, form = {}, text and set_forms[(#text - 8) / 24]
    -- What riskgate did not write has no buckets.
    if not form then return buckets end
    local read = { struct.unpack(form, text) }
    local passed = math.max(0, now - read[1]) * 1000
    -- The last value is the position behind the text.
    for place = 2, #read - 3, 3 do
        local left, count = read[place + 1] - passed, #buckets
        if left > -kept_after_full then
            buckets[count + 1], buckets[count + 2] = read[place], left
            buckets[count + 3] = read[place + 2] + passed
        end
    end
    return buckets
end

-- Returns the place of the bucket, which is a full one if the set did not have it.
local function find_or_add(buckets, id)
    local soonest = 1
    for place = 1, #buckets, 3 do
        if buckets[place] == id then return place end
        if buckets[place + 1] < buckets[soonest + 1] then soonest = place end
    end
    local place = #buckets < 3 * max_buckets and #buckets + 1 or soonest
    buckets[place], buckets[place + 1], buckets[place + 2] = id, false, 0
    return place
end

-- Charges the bucket at this place, and returns the time until it is full. `began_ago` is how long
-- ago the requests began that the time left consists of. Each request after that moment adds the
-- whole time that it needs to refill, in whatever order nodes tell their requests. An earlier one
-- adds what must be left of it. So the time may be too short, and is never too long.
local function charge_bucket(buckets, place, refill, first_age, node_left, node_not_full_for, most)
    local left, began_ago = buckets[place + 1], buckets[place + 2]
    local is_known, is_full = left, not left or left <= 0
    first_age = first_age + late
    -- What the node knows alone: also what the server has lost, or never got.
    local own_left, own_began_ago = node_left - late, node_not_full_for + late
    if own_left <= 0 then own_left, own_began_ago = refill - first_age, first_age end
    local total = is_known and left + refill - math.max(0, first_age - began_ago)
    if not is_known or total < own_left then
        left, began_ago = own_left, is_full and own_began_ago or math.max(own_began_ago, began_ago)
    else
        began_ago = math.max(began_ago, first_age, is_full and 0 or own_began_ago)
        left = total
    end
    left = math.min(left, most)
    buckets[place + 1], buckets[place + 2] = left, began_ago
    return math.max(0, left)
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
        written[#written + 1] = number
        written[#written + 1] = struct.pack(set_forms[#buckets / 3], now, unpack(buckets))
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
