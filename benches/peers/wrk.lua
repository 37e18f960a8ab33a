-- Sends the requests of the workload in turn, each thread from another offset, and prints the
-- outcome.
--
--   wrk … -s wrk.lua URL -- MIX PIPELINED
--
-- wrk itself counts statuses above 399 and broken connections. Bodies are not checked here, because
-- that would cost more than sending requests; scripts/bench checks some before and after each
-- window, and the mean length of all responses.
local threads = 0

function setup(thread)
    thread:set("thread_number", threads)
    threads = threads + 1
end

local requests, at = {}, 0

function init(arguments)
    local each, pipelined = {}, tonumber(arguments[2])
    for line in io.lines(arguments[1]) do
        local path, key, origin, form = line:match("^([^\t]*)\t([^\t]*)\t([^\t]*)\t[^\t]*\t?(.*)$")
        local from = origin ~= "" and "Origin: " .. origin .. "\r\n" or ""
        local posted = form ~= "" and "Content-Type: application/x-www-form-urlencoded\r\n"
            .. "Content-Length: " .. #form .. "\r\n" or ""
        each[#each + 1] = (form ~= "" and "POST " or "GET ") .. path .. " HTTP/1.1\r\n"
            .. "Host: gate.test\r\nAuthorization: Bearer " .. key .. "\r\n" .. from .. posted
            .. "\r\n" .. form
    end
    for first = 1, #each - pipelined + 1, pipelined do
        requests[#requests + 1] = table.concat(each, "", first, first + pipelined - 1)
    end
    at = (thread_number * 617) % #requests
end

function request()
    at = at % #requests + 1
    return requests[at]
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '\nOUTCOME {"answers":%d,"seconds":%.6f,"bytes":%d,"bad_status":%d,"broken":%d,'
            .. '"p50":%d,"p99":%d,"p999":%d}\n',
        summary.requests, summary.duration / 1e6, summary.bytes, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout,
        latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
