-- Writes back what the store lost: the verb `restore`, a page of it.
--
-- KEYS 1 the mark, 2 keys, 3 digests, 4 accounts, 5 what changed when, 6 imports
-- ARGV 1 an id for the change, 2 the number of keys; then of each key its id, digest and row; then
--      of each account its name and row
-- Answers the version that it leads to; 0 if nothing is to be written. A key is known by its digest,
-- whatever id it has here; one whose id is another key's here is left out.

local mark, keys, digests, accounts, changed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local imports, first_account = KEYS[6], 3 + 3 * tonumber(ARGV[2])

-- The row as it stands, ended when either says so; nothing if that is no news, or another key.
local function merge_end(known, hex, row)
    local born, expires, revoked, rest = string.match(known, '^(%S+) (%S+) (%S+) (.*)$')
    if not born or import_status(imports, born) ~= 'live' then return end
    if string.match(rest, '^%x+') ~= hex then return end
    local expires_too, revoked_too = string.match(row, '^(%S+) (%S+)')
    local later = expires == '-' or (tonumber(expires) or 0) > (tonumber(expires_too) or 0)
    if expires_too ~= '-' and later then expires = expires_too end
    if revoked == '-' then revoked = revoked_too end
    local now = table.concat({born, expires, revoked, rest}, ' ')
    if now ~= known then return now end
end

-- Read and judged before anything is written: a script that fails is not undone.
local rows, index, names, members = {}, {}, {}, {}
for at = 3, first_account - 1, 3 do
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

local version = next_version(mark, ARGV[1])
for _, member in ipairs(members) do redis.call('ZADD', changed, version, member) end
if #rows > 0 then redis.call('HSET', keys, unpack(rows)) end
if #index > 0 then redis.call('HSET', digests, unpack(index)) end
if #names > 0 then redis.call('HSET', accounts, unpack(names)) end
return version
