-- Writes a page of lost rows back: the operation `write_back_lost_rows`.
--
-- KEYS 1 metadata of the ring, 2 keys, 3 digests, 4 accounts, 5 changes, 6 imports, 7 the audit
-- ARGV 1 an id for the change, 2 the author, 3 the number of keys; then for each key its id, digest
--      and row; then for each account its name and row
-- Returns the new version; 0 if there is nothing to write. A digest identifies a key, whatever its
-- id in the store. If the digest is missing and another key has the id, the key is left out.

local meta, keys, digests, accounts, changed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local imports, first_account = KEYS[6], 4 + 3 * tonumber(ARGV[3])

-- Returns the stored row with the earlier of both ends. Returns nil if the stored row would stay
-- the same, belongs to another key, or is not in effect.
local function merge_end(known, hex, row)
    local key = read_live_key(imports, known)
    if not key or string.match(key[4], '^%x+') ~= hex then return end
    local expires_too, revoked_too = string.match(row, '^(%S+) (%S+)')
    local later = key[2] == '-' or (tonumber(key[2]) or 0) > (tonumber(expires_too) or 0)
    if expires_too ~= '-' and later then key[2] = expires_too end
    if key[3] == '-' then key[3] = revoked_too end
    local now = table.concat(key, ' ')
    if now ~= known then return now end
end

-- All reads and checks come before the first write: a script that fails is not rolled back.
local rows, index, names, members = {}, {}, {}, {}
for at = 4, first_account - 1, 3 do
    local id, hex, row = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local known_id, now = redis.call('HGET', digests, hex), nil
    if known_id then
        id = known_id
        now = merge_end(redis.call('HGET', keys, id) or '', hex, row)
    elseif not redis.call('HGET', keys, id) then
        now = '- ' .. row
        index[#index + 1], index[#index + 2] = hex, id
    end
    if now then
        rows[#rows + 1], rows[#rows + 2] = id, now
        members[#members + 1] = 'key:' .. id
    end
end
for at = first_account, #ARGV, 2 do
    if not redis.call('HGET', accounts, ARGV[at]) then
        names[#names + 1], names[#names + 2] = ARGV[at], '- ' .. ARGV[at + 1]
        members[#members + 1] = 'account:' .. ARGV[at]
    end
end
if #members == 0 then return 0 end

local version = next_version(meta, changed, ARGV[1])
local restored = string.format('%.0f', #members)
record_change(KEYS[7], ARGV[2], 'key.restore', restored .. ' keys and accounts', 'json', '',
    '{"rows":' .. restored .. '}')
for _, member in ipairs(members) do redis.call('ZADD', changed, version, member) end
if #rows > 0 then redis.call('HSET', keys, unpack(rows)) end
if #index > 0 then redis.call('HSET', digests, unpack(index)) end
if #names > 0 then redis.call('HSET', accounts, unpack(names)) end
return version
