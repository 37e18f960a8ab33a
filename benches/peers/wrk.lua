-- Asks for the mix in turn, from a place of its own in each thread, and says what came of it.
--
--   wrk … -s wrk.lua URL -- MIX PIPELINED
--
-- wrk itself counts answers above 399 and broken connections. Bodies are not looked at here: that
-- would cost more than asking; scripts/bench checks them around each window, and the mean length of
-- all answers.
local threads = 0

function setup(thread)
    thread:set("place", threads)
    threads = threads + 1
end

local asked, at = {}, 0

function init(words)
    local each, pipelined = {}, tonumber(words[2])
    for line in io.lines(words[1]) do
        local path, key, origin = line:match("^([^\t]*)\t([^\t]*)\t([^\t]*)\t")
        local from = origin ~= "" and "Origin: " .. origin .. "\r\n" or ""
        each[#each + 1] = "GET " .. path .. " HTTP/1.1\r\nHost: gate.test\r\nAuthorization: Bearer "
            .. key .. "\r\n" .. from .. "\r\n"
    end
    for first = 1, #each - pipelined + 1, pipelined do
        asked[#asked + 1] = table.concat(each, "", first, first + pipelined - 1)
    end
    at = (place * 617) % #asked
end

function request()
    at = at % #asked + 1
    return asked[at]
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
