-- Functions that all scripts of the ring share; this file is put in front of each of them.
--
-- An import adds many keys in pages. Each row names its import, and takes effect once the import is
-- committed. In the sorted set of changes, these rows have the negated number of the import as
-- score, even after the commit, until another change. An import reserves its names until a time
-- that each of its pages moves. After that time it is abandoned, and the next script that writes
-- one of its names makes its caller clear the import.
--
-- The entry of an import is "number until version": its number, the Unix second until which it
-- reserves its names, and the version that its commit led to (0 before the commit).

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

-- Appends a record to the audit if something changed, and deletes some records older than 400 days. `author`
-- is JSON. `form` says what `before` and `after` are: 'key' or 'account' for the text of a row
-- without its import, 'json' for JSON. An empty text stands for no state.
local function record_change(audit, author, operation, target, form, before, after)
    if before == after and before ~= '' then return end
    local oldest = (tonumber(redis.call('TIME')[1]) - 400 * 86400) * 1000
    redis.call('XADD', audit, 'MINID', '~', string.format('%.0f', oldest), 'LIMIT', 100, '*',
        'author', author, 'operation', operation, 'target', target, 'form', form,
        'before', before, 'after', after)
end

-- Returns the text of a row without its import.
local function without_import(row)
    return string.match(row, '^%S+ (.*)$') or ''
end

-- Remembers a request that can be repeated, for a day. `request` is the name of its Redis key.
local function remember_request(request, value)
    if value ~= '' then redis.call('SET', request, value, 'EX', 86400) end
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
