-- Rotates a key or undoes a rotation: the operations `rotate_key` and `undo_rotation`.
--
-- KEYS 1 metadata of the ring, 2 keys, 3 digests, 4 accounts, 5 changes, 6 imports, 7 the audit,
--      8 requests that can be repeated
-- ARGV 1 an id for the change, 2 the author, 3 'rotate' or 'undo', 4 the old key's id, 5 the new
--      key's id, 6 when the old key ends, 7 the current second; to rotate: 8 the new key's digest,
--      9 its row, 10 the id and value of the request ('' if it can't be repeated); to undo: 8 the
--      former expiry of the old key ('-': none)
-- Returns the version that the change leads to; 0 if there is no such key; 'ended' if the old key
-- has ended already; 'taken' with the new id and the known id; or 'repeated'.

local meta, keys, digests, changed, imports = KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6]
local audit, author, requests, is_rotation = KEYS[7], ARGV[2], KEYS[8], ARGV[3] == 'rotate'
local old, new, old_expires_at, now = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local function read_row(id)
    return (read_live_key(imports, redis.call('HGET', keys, id)))
end

-- All reads and checks come before the first write: a script that fails is not rolled back.
local old_row, new_row, new_before = read_row(old), nil, ''
if not old_row then return 0 end
local old_before = without_import(table.concat(old_row, ' '))
if is_rotation then
    if is_repeated(requests, ARGV[10]) then return {'repeated'} end
    local has_expired = old_row[2] ~= '-' and tonumber(old_row[2]) <= tonumber(now)
    if old_row[3] ~= '-' or has_expired then return {'ended'} end
    local known = (redis.call('HGET', keys, new) and new)
        or redis.call('HGET', digests, ARGV[8])
    if known then return {'taken', new, known} end
    if old_row[2] == '-' or tonumber(old_expires_at) < tonumber(old_row[2]) then
        old_row[2] = old_expires_at
    end
    new_row = '- ' .. ARGV[9]
else
    local row = read_row(new)
    if not row then return 0 end
    new_before = without_import(table.concat(row, ' '))
    if row[3] == '-' then row[3] = now end
    new_row = table.concat(row, ' ')
    -- If another command has changed the end of the old key, that end stays.
    if old_row[2] == old_expires_at then old_row[2] = ARGV[8] end
end

local version = next_version(meta, changed, ARGV[1])
local old_after, new_after = without_import(table.concat(old_row, ' ')), without_import(new_row)
local old_operation = is_rotation and 'key.rotate' or 'key.rotation_undo'
local new_operation = is_rotation and 'key.create' or 'key.revoke'
record_change(audit, author, old_operation, old, 'key', old_before, old_after)
record_change(audit, author, new_operation, new, 'key', new_before, new_after)
if is_rotation then remember_request(requests, ARGV[10]) end
redis.call('ZADD', changed, version, 'key:' .. new, version, 'key:' .. old)
if is_rotation then redis.call('HSET', digests, ARGV[8], new) end
redis.call('HSET', keys, new, new_row, old, table.concat(old_row, ' '))
return version
