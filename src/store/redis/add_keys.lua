-- Adds a page of new keys and their accounts, all or none: the operation `add_keys`.
--
-- KEYS 1 metadata of the ring, 2 keys, 3 digests, 4 accounts, 5 changes, 6 imports, 7 the audit,
--      8 requests that can be repeated
-- ARGV 1 an id for the change, 2 the author,
--      3 the import that the keys belong to ('-' if none: the keys then take effect at once),
--      4 '1' on the first page of the import, else '0',
--      5 for how many seconds the import reserves its names,
--      6 the id and the value of the request ('' if it can't be repeated),
--      7 the operation, 8 the target, 9 the state before and 10 the state after in JSON, for the
--        audit (all are '' in an import, whose end brings them),
--      11 the plan of an account without a plan;
--      then for each key its id, digest, row, account, plan ('' if none is given), and the plan
--      that the account has by the key file ('' if the file does not name it)
-- Returns the version (0 before the import is committed), or the reason why nothing was added:
-- 'taken' with the id and the known id; 'other_plan' with the account, its plan and the plan of the
-- key; 'busy'; 'abandoned' with the import; or 'repeated'.

local meta, keys, digests, accounts, changed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local imports, requests, import = KEYS[6], KEYS[8], ARGV[3]
local audit, author, request, default_plan = KEYS[7], ARGV[2], ARGV[6], ARGV[11]
local FIRST_KEY, KEY_ARGUMENTS = 12, 6

local ids, hexes, names, is_named = {}, {}, {}, {}
for at = FIRST_KEY, #ARGV, KEY_ARGUMENTS do
    ids[#ids + 1], hexes[#hexes + 1] = ARGV[at], ARGV[at + 1]
    local name = ARGV[at + 3]
    if not is_named[name] then names[#names + 1], is_named[name] = name, true end
end

-- All reads and checks come before the first write: a script that fails is not rolled back.
if is_repeated(requests, request) then return {'repeated'} end
local number
if import ~= '-' and ARGV[4] == '0' then
    if import_status(imports, import) ~= 'busy' then
        return redis.error_reply('LATE: the import took too long and no longer reserves its names')
    end
    number = string.match(redis.call('HGET', imports, import), '^%d+')
end
local by_id = redis.call('HMGET', keys, unpack(ids))
local by_digest = redis.call('HMGET', digests, unpack(hexes))
local seen_ids, seen_hexes = {}, {}
for at, id in ipairs(ids) do
    local hex = hexes[at]
    local taken = (seen_ids[id] and id) or seen_hexes[hex]
    if taken then return {'taken', id, taken} end
    local known = (by_id[at] and id) or by_digest[at]
    if known then
        local row = by_id[at] or redis.call('HGET', keys, known) or ''
        local row_import = string.match(row, '^%S+')
        local status = import_status(imports, row_import)
        if (status == 'busy' or status == 'abandoned') and row_import ~= import then
            return {status, row_import}
        end
        return {'taken', id, known}
    end
    seen_ids[id], seen_hexes[hex] = true, id
end
local known_accounts, rows, is_new = redis.call('HMGET', accounts, unpack(names)), {}, {}
for at, name in ipairs(names) do
    local row = known_accounts[at] or (import .. ' - null')
    local row_import = string.match(row, '^(%S+) %S+ .')
    local status = row_import == import and 'live' or import_status(imports, row_import)
    if status == 'damaged' then
        return redis.error_reply('DAMAGED account ' .. name .. ': riskgate accounts set mends it')
    end
    if status ~= 'live' then return {status, row_import} end
    rows[name] = row
    is_new[name] = not known_accounts[at] or (import ~= '-' and row_import == import)
end
-- The plan that a key names becomes the plan of a new account, and never changes that of another.
-- If the key file names the account, its plan stays with the file.
for at = FIRST_KEY, #ARGV, KEY_ARGUMENTS do
    local name, plan, by_key_file = unpack(ARGV, at + 3, at + 5)
    if plan ~= '' then
        local row_import, limit, present = string.match(rows[name], '^(%S+) (%S+) (.+)$')
        if present == 'null' and by_key_file ~= '' then
            present = by_key_file
        elseif present == 'null' then
            present = is_new[name] and plan or default_plan
            if is_new[name] then rows[name] = table.concat({row_import, limit, plan}, ' ') end
        end
        if present ~= plan then return {'other_plan', name, present, plan} end
    end
end

local score
if import == '-' then
    score = next_version(meta, changed, ARGV[1])
    record_change(audit, author, ARGV[7], ARGV[8], 'json', ARGV[9], ARGV[10])
    remember_request(requests, request)
else
    number = number or redis.call('HINCRBY', meta, 'imports', 1)
    local held_until = believed_now + tonumber(ARGV[5])
    redis.call('HSET', imports, import, string.format('%.0f %.0f 0', number, held_until))
    score = -number
end
local new_rows, index, members = {}, {}, {}
for at = FIRST_KEY, #ARGV, KEY_ARGUMENTS do
    local id, hex, row = unpack(ARGV, at, at + 2)
    new_rows[#new_rows + 1], new_rows[#new_rows + 2] = id, import .. ' ' .. row
    index[#index + 1], index[#index + 2] = hex, id
    members[#members + 1], members[#members + 2] = score, 'key:' .. id
end
redis.call('ZADD', changed, unpack(members))
redis.call('HSET', keys, unpack(new_rows))
redis.call('HSET', digests, unpack(index))
local changed_rows, changed_members = {}, {}
for name, row in pairs(rows) do
    -- An import leaves the rows of existing accounts alone.
    if import == '-' or string.match(row, '^%S+') == import then
        changed_rows[#changed_rows + 1], changed_rows[#changed_rows + 2] = name, row
        changed_members[#changed_members + 1] = score
        changed_members[#changed_members + 1] = 'account:' .. name
    end
end
if #changed_rows > 0 then
    redis.call('ZADD', changed, unpack(changed_members))
    redis.call('HSET', accounts, unpack(changed_rows))
end
return math.max(0, score)
