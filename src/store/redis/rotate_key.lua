-- Rotating a key, and taking a rotation back: the verbs `rotate_key` and `undo_rotation`.
--
-- KEYS 1 the mark, 2 keys, 3 digests, 4 accounts, 5 what changed when, 6 imports
-- ARGV 1 an id for the change, 2 'rotate' or 'undo', 3 the old key's id, 4 the new
--      one's, 5 when the old key ends, 6 the current second;
--      to rotate: 7 the new key's digest, 8 its row; to undo: 7 the old key's expiry before ('-': none)
-- Answers the version that the change leads to; 0 where there is no such key; 'ended' where the old
-- key has ended already; or 'taken', the new id and the known one's.

local mark, keys, digests, changed, imports = KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6]
local old, new, ends, now = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local function read_row(id)
    local row = redis.call('HGET', keys, id)
    if not row then return nil end
    local born, expires, revoked, rest = string.match(row, '^(%S+) (%S+) (%S+) (.*)$')
    if not born or import_status(imports, born) ~= 'live' then return nil end
    return {born, expires, revoked, rest}
end

-- Read and judged before anything is written: a script that fails is not undone.
local old_row, new_row = read_row(old), nil
if not old_row then return 0 end
if ARGV[2] == 'rotate' then
    local has_expired = old_row[2] ~= '-' and tonumber(old_row[2]) <= tonumber(now)
    if old_row[3] ~= '-' or has_expired then return {'ended'} end
    local known = (redis.call('HGET', keys, new) and new)
        or redis.call('HGET', digests, ARGV[7])
    if known then return {'taken', new, known} end
    if old_row[2] == '-' or tonumber(ends) < tonumber(old_row[2]) then old_row[2] = ends end
    new_row = '- ' .. ARGV[8]
else
    local row = read_row(new)
    if not row then return 0 end
    if row[3] == '-' then row[3] = now end
    new_row = table.concat(row, ' ')
    -- Somebody else may have ended the old key sooner meanwhile; that stays.
    if old_row[2] == ends then old_row[2] = ARGV[7] end
end

local version = next_version(mark, ARGV[1])
redis.call('ZADD', changed, version, 'key:' .. new, version, 'key:' .. old)
if ARGV[2] == 'rotate' then redis.call('HSET', digests, ARGV[7], new) end
redis.call('HSET', keys, new, new_row, old, table.concat(old_row, ' '))
return version
