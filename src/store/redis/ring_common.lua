-- Functions that all scripts of the ring share; this file is put in front of each of them.
--
-- An import adds many keys in pages. Its rows name the import and take effect once it is committed.
-- Until then their changes have the negated number of the import as score, which is no version. The
-- import reserves its names while it goes on. An abandoned import is cleared by the next writer
-- that meets it.
--
-- The entry of an import is "number until version": its number, the second until which it reserves
-- its names unless it goes on, and the version that it led to (0 before it is committed).

-- Returns the status of a row of an import, or of none ('-'): 'live' if it takes effect, 'busy' or
-- 'abandoned' if its import is not committed, and 'damaged' if the row or the import can't be read.
local function import_status(imports, row_import)
    if row_import == '-' then return 'live' end
    if not row_import or not string.match(row_import, '^%x+$') then return 'damaged' end
    local known = redis.call('HGET', imports, row_import) or '0 0 0'
    local held_until, version = string.match(known, '^%d+ (%d+) (%d+)$')
    if not version then return 'damaged' end
    if version ~= '0' then return 'live' end
    local now = tonumber(redis.call('TIME')[1])
    return tonumber(held_until) > now and 'busy' or 'abandoned'
end

-- How many of the latest changes keep their ids.
local KEPT_CHANGES = 1000

-- Begins the next version of the ring. Each change has an id, because two changes can lead to the
-- same version if the store lost one of them.
local function next_version(meta, id)
    redis.call('HSETNX', meta, 'store_id', id)
    redis.call('HSETNX', meta, 'version', 1)
    local version = redis.call('HINCRBY', meta, 'version', 1)
    local text = string.format('%.0f', version)
    redis.call('HSET', meta, 'history', text .. ' ' .. id, 'change:' .. text, id)
    redis.call('HDEL', meta, string.format('change:%.0f', version - KEPT_CHANGES))
    return version
end
