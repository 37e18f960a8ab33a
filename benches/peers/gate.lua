-- The work of riskgate in Lua: key look-up by SHA-256, origin, monthly count, format, table with
-- parent domains, RateLimit, top counting, a counter for each outcome.
--
-- The table of domains and the keys are Lua tables in each worker, because these are faster than a
-- shared dictionary. All workers share the counts. There is no public suffix list, no UTS-46 and no
-- store: the counts are in memory only.
local ffi = require "ffi"

ffi.cdef [[
unsigned char *SHA256(const unsigned char *text, size_t length, unsigned char *digest);
]]

local ngx = ngx
local find, sub, byte, lower = string.find, string.sub, string.byte, string.lower
local digest = ffi.new("unsigned char[32]")

local _M = {}
-- By name: the facts, whether they cover subdomains, whether they are flagged. By digest: the key.
local facts, covers, flagged, keys = {}, {}, {}, {}
local top, served = {}, {}
local UNKNOWN = '"risk_score":10,"reason":"safe","is_free_provider":false,'
    .. '"is_corporate_email":false,"mx_provider_label":null'
local EXPOSED = "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Fail-Open, "
    .. "X-Table-Version, X-Matched-Domain, X-Verdict-Source, X-Did-You-Mean, X-Evidence-Date"
local MONTH = { month = "", ends = 0 }

local function unhex(text)
    return (text:gsub("..", function(two) return string.char(tonumber(two, 16)) end))
end

function _M.load(table_file, key_file)
    for line in io.lines(table_file) do
        local name, kind, text = line:match("^([^\t]+)\t([^\t]+)\t(.+)$")
        facts[name], covers[name] = text, kind == "covers"
        flagged[name] = not text:find('"reason":"safe"', 1, true)
    end
    for line in io.lines(key_file) do
        local hash, account, limit, origins = line:match("^(%S+)\t(%S+)\t(%S+)\t?(.*)$")
        local allowed
        for origin in origins:gmatch("%S+") do
            allowed = allowed or {}
            allowed[origin] = true
        end
        keys[unhex(hash)] = { account = account, limit = tonumber(limit), origins = allowed,
            policy = '"monthly";q=' .. limit }
    end
end

local function month_of(now)
    if now >= MONTH.ends then
        local date = os.date("!*t", now)
        MONTH.month = date.year .. "-" .. date.month .. ":"
        local next_month = { year = date.year, month = date.month + 1, day = 1, hour = 0 }
        -- os.time takes local time, so the offset from UTC at `now` is added.
        MONTH.ends = os.time(next_month) + os.difftime(now, os.time(os.date("!*t", now)))
    end
    return MONTH
end

local function refuse(status, code)
    served[code] = (served[code] or 0) + 1
    ngx.status = status
    ngx.header.content_type = "application/json"
    local body = '{"error":"' .. code .. '","message":"See the documents.","detail":null}'
    ngx.header.content_length = #body
    ngx.print(body)
end

local function find_key(header)
    if not header or #header < 8 or lower(sub(header, 1, 7)) ~= "bearer " then
        return nil
    end
    ffi.C.SHA256(sub(header, 8), #header - 7, digest)
    return keys[ffi.string(digest, 32)]
end

-- Returns the row for a name: its own, or that of its nearest parent that covers subdomains.
local function row_of(domain)
    if facts[domain] then
        return domain
    end
    local at = find(domain, ".", 1, true)
    while at do
        local parent = sub(domain, at + 1)
        if covers[parent] then
            return parent
        end
        at = find(domain, ".", at + 1, true)
    end
end

function _M.answer()
    local var = ngx.var
    local key = find_key(var.http_authorization)
    if not key then
        return refuse(401, "unauthorized")
    end
    local origin = var.http_origin
    if origin and key.origins and not key.origins[origin] then
        return refuse(403, "forbidden")
    end
    local now = ngx.time()
    local month = month_of(now)
    local used = ngx.shared.quota:incr(month.month .. key.account, 1, 0)
    if not used or used > key.limit then
        ngx.shared.quota:incr(month.month .. key.account, -1)
        return refuse(429, "quota_exceeded")
    end
    local domain = sub(var.uri, 19)
    if not ngx.re.find(domain, [[^[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+$]], "jo") then
        return refuse(422, "validation_error")
    end
    local row = row_of(domain)
    local header = ngx.header
    if row then
        if row ~= domain then
            header["X-Matched-Domain"] = row
        end
        -- An account counts once per row and day.
        if flagged[row] and ngx.shared.seen:safe_add(key.account .. row, true, 86400) then
            top[row] = (top[row] or 0) + 1
        end
    end
    header["RateLimit-Policy"] = key.policy
    header["RateLimit"] = '"monthly";r=' .. key.limit - used .. ";t=" .. month.ends - now
    if origin then
        header["Access-Control-Allow-Origin"] = origin
        header["Access-Control-Expose-Headers"] = EXPOSED
    end
    local body = '{"domain":"' .. domain .. '",' .. (row and facts[row] or UNKNOWN) .. "}"
    header.content_length = #body
    served.ok = (served.ok or 0) + 1
    ngx.print(body)
end

return _M
