-- What all scripts of the ring have in common; it stands before each of them.
--
-- An import of many keys goes in pages. Its rows name it, and are there once it was committed.
-- Until then they changed at minus its number, which is no version. It holds their names for as
-- long as it goes on; one that was given up is dead, and cleared away by whoever meets it.
--
-- An import is "number until version": how it is numbered, until which second it holds its names
-- unless it goes on, and the version that it led to, 0 before.

-- Whether a row of this import, or of none ('-'), is 'live', or its name 'busy' or 'abandoned'; or
-- whether the row or the import is 'damaged', so that nobody knows.
local function import_status(imports, born)
    if born == '-' then return 'live' end
    if not born or not string.match(born, '^%x+$') then return 'damaged' end
    local known = redis.call('HGET', imports, born) or '0 0 0'
    local held_until, version = string.match(known, '^%d+ (%d+) (%d+)$')
    if not version then return 'damaged' end
    if version ~= '0' then return 'live' end
    local now = tonumber(redis.call('TIME')[1])
    return tonumber(held_until) > now and 'busy' or 'abandoned'
end

-- So many of the latest changes are known by their ids.
local KEPT_CHANGES = 1000

-- The next version of the ring. Each change has an id, which tells apart two changes that led to
-- the same version because the store lost one of them.
local function next_version(mark, id)
    redis.call('HSETNX', mark, 'store_id', id)
    redis.call('HSETNX', mark, 'version', 1)
    local version = redis.call('HINCRBY', mark, 'version', 1)
    local text = string.format('%.0f', version)
    redis.call('HSET', mark, 'history', text .. ' ' .. id, 'change:' .. text, id)
    redis.call('HDEL', mark, string.format('change:%.0f', version - KEPT_CHANGES))
    return version
end
