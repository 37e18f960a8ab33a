-- Functions that the scripts about overrides share; this file is put in front of each of them,
-- behind `ring_common.lua`.
--
-- A hash has the overrides: each field is "NAME SCOPE", each value is "TIME JSON", where the JSON
-- is a list of the row and its author. The field `overrides` of the metadata is "NUMBER ID COUNT".
-- The fields `override_change:NUMBER` have the ids of the latest versions.

-- Proves the rights to a change, and makes an empty server a store. Each script calls this function
-- before it appends its record.
local function prepare_change(meta, id)
    prove_rights()
    -- A gateway may lack the right to HSETNX, which only an empty store needs.
    if not redis.call('HGET', meta, 'store_id') then
        redis.call('HSETNX', meta, 'store_id', id)
        redis.call('HSETNX', meta, 'version', 1)
    end
end

-- Begins the next version of the overrides.
local function next_overrides_version(meta, overrides, id)
    local known = redis.call('HGET', meta, 'overrides') or '0 - 0'
    local number = (tonumber(string.match(known, '^(%d+) ')) or 0) + 1
    local text = string.format('%.0f %s %.0f', number, id, redis.call('HLEN', overrides))
    redis.call('HSET', meta, 'overrides', text, string.format('override_change:%.0f', number), id)
    redis.call('HDEL', meta, string.format('override_change:%.0f', number - KEPT_CHANGES))
end
