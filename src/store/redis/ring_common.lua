-- Functions that all scripts of the ring share; this file is put in front of each of them.
--
-- The last two arguments of each script are the believed time of the caller in Unix seconds, and
-- how it may be used: 'settled' if old records may be deleted by it, 'bound' if it is only the
-- latest time that the caller knows, else 'known'. They are taken off here, so that the scripts
-- need not count them. No key, import, request or record ends by the server's clock, because that
-- clock may jump. The last Redis key of each script is one that nothing has: it is taken off as
-- well.
--
-- An import adds many keys in pages. Each row names its import, and takes effect once the import is
-- committed. In the sorted set of changes, these rows have the negated number of the import as
-- score, even after the commit, until another change. An import reserves its names until a time
-- that each of its pages sets again. After that time the import is abandoned. The next script that
-- adds a key or sets an account with one of its names makes its caller clear the import.
--
-- The entry of an import is "number until version": its number, the Unix second until which it
-- reserves its names, and the version that its commit led to (0 before the commit).

local time_trust = table.remove(ARGV)
local may_delete = time_trust == 'settled'
local believed_now = tonumber(table.remove(ARGV))
local unused_key = table.remove(KEYS)

-- Returns the status of a row of an import, or of none ('-'): 'live' if it takes effect, 'busy' or
-- 'abandoned' if its import is not committed, and 'damaged' if the row or the import can't be read.
local function import_status(imports, row_import)
    if row_import == '-' then return 'live' end
    if not row_import or not string.match(row_import, '^%x+$') then return 'damaged' end
    local known = redis.call('HGET', imports, row_import) or '0 0 0'
    local held_until, version = string.match(known, '^%d+ (%d+) (%d+)$')
    if not version then return 'damaged' end
    if version ~= '0' then return 'live' end
    return tonumber(held_until) > believed_now and 'busy' or 'abandoned'
end

-- Returns the id of a new record, and its time. Ids grow: if the last record has this millisecond
-- or a later one, the new record gets the millisecond of the last record and the next number.
local function next_record_id(audit)
    local at, milliseconds, number = believed_now, believed_now * 1000, 0
    local last = redis.call('XREVRANGE', audit, '+', '-', 'COUNT', 1)[1]
    if last then
        local last_milliseconds, last_number = string.match(last[1], '^(%d+)-(%d+)$')
        if tonumber(last_milliseconds) >= milliseconds then
            milliseconds, number = tonumber(last_milliseconds), tonumber(last_number) + 1
            if time_trust == 'bound' then at = math.floor(milliseconds / 1000) end
        end
    end
    -- A stream has no record 0-0.
    local id = string.format('%.0f-%.0f', math.max(milliseconds, 1), number)
    return id, string.format('%.0f', at)
end

-- Runs the commands that a change and its record need, without effect: nothing has this name. If
-- the user lacks a right, or the server a command, the script fails here, where nothing has
-- changed.
--
-- A script that makes a change with a record calls this function before its first write. Other
-- commands that the script needs, it runs without effect before it appends the record.
-- `fill_ring.lua` may call this function later, because what it writes before is only staged.
local function prove_rights()
    redis.call('XREVRANGE', unused_key, '+', '-', 'COUNT', 1)
    redis.call('XADD', unused_key, 'NOMKSTREAM', '1-0', 'field', 'value')
    redis.call('HDEL', unused_key, 'field')
    redis.call('HSET', unused_key, 'field', 'value')
    redis.call('HDEL', unused_key, 'field')
end

-- Appends a record to the audit if something changed. Deletes some records older than 400 days, if
-- the caller allows it. `author` is JSON. `form` says what `before` and `after` are: 'key' or
-- 'account' for the text of a row without its import, 'json' for JSON. An empty text stands for no
-- state.
local function record_change(audit, author, operation, target, form, before, after)
    if before == after and before ~= '' then return end
    local id, at = next_record_id(audit)
    local fields = {'at', at, 'author', author,
        'operation', operation, 'target', target, 'form', form, 'before', before, 'after', after}
    local oldest = (believed_now - 400 * 86400) * 1000
    if may_delete and oldest > 0 then
        redis.call('XADD', audit, 'MINID', '~', string.format('%.0f', oldest), 'LIMIT', 100, id,
            unpack(fields))
    else
        redis.call('XADD', audit, id, unpack(fields))
    end
end

-- Splits the row of a key into its import, expiry, revocation and rest. Returns nil unless the row
-- is in effect; the second value is the status of the row.
local function read_live_key(imports, row)
    local row_import, expires, revoked, rest = string.match(row or '', '^(%S+) (%S+) (%S+) (.*)$')
    local status = row_import and import_status(imports, row_import) or 'damaged'
    return status == 'live' and {row_import, expires, revoked, rest} or nil, status
end

-- Returns the text of a row without its import.
local function without_import(row)
    return string.match(row, '^%S+ (.*)$') or ''
end

-- For how many seconds a request can be repeated.
local REQUEST_RETENTION_SECONDS = 86400

-- Returns true if the entry of a request is so old that it counts as forgotten.
local function is_forgotten(entry)
    local at = string.match(entry, '^(%-?%d+) ')
    return not at or tonumber(at) <= believed_now - REQUEST_RETENTION_SECONDS
end

-- Returns true if the store knows the request. `request` is its id and what is remembered of it, or
-- '' if it can't be repeated.
local function is_repeated(requests, request)
    local entry = request ~= '' and redis.call('HGET', requests, string.match(request, '^%S+'))
    return entry and not is_forgotten(entry)
end

-- Remembers a request that can be repeated, for a day by the believed time: Redis would expire a
-- key by the server's clock. `delete_expired.lua` deletes the request.
local function remember_request(requests, request)
    if request == '' then return end
    local id, value = string.match(request, '^(%S+) (.*)$')
    redis.call('HSET', requests, id, string.format('%.0f %s', believed_now, value))
end

-- How many of the latest changes keep their ids.
local KEPT_CHANGES = 1000

-- Begins the next version of the ring. Each change has an id, because two changes can lead to the
-- same version if the store lost one of them.
--
-- A script calls this function before it appends its record, and then writes only with commands
-- that this function has run: if the user lacks a right, or the server a command, the script fails
-- here, and no record is left without its change. `fill_ring.lua` calls it later, because its
-- record is only staged.
local function next_version(meta, changed, id)
    prove_rights()
    -- XX adds no member, so this writes nothing.
    redis.call('ZADD', changed, 'XX', 0, '')
    redis.call('HSETNX', meta, 'store_id', id)
    redis.call('HSETNX', meta, 'version', 1)
    local version = redis.call('HINCRBY', meta, 'version', 1)
    local text = string.format('%.0f', version)
    redis.call('HSET', meta, 'history', text .. ' ' .. id, 'change:' .. text, id)
    redis.call('HDEL', meta, string.format('change:%.0f', version - KEPT_CHANGES))
    return version
end
