-- Asks riskgate whether to admit a request: see haproxy.cfg.
-- The section `listen authz` of haproxy.cfg.
local AUTHZ_URL = "http://127.0.0.1:8001/authz"
-- The section answers after two seconds, whatever riskgate does. So this time never passes.
local TIMEOUT_MS = 3000
local MAX_BODY_BYTES = 65536
-- The client's fields that riskgate reads.
local SENT = {
    "content-type", "content-encoding", "origin", "authorization",
    "x-email", "x-riskgate-key", "x-request-id",
}
-- The fields of the answer, and the variable for each: txn.riskgate_<name>.
local ANSWERED = {
    ["x-riskgate-action"] = "action",
    ["x-riskgate-rule"] = "rule",
    ["x-riskgate-inbox"] = "inbox",
    ["x-riskgate-reason"] = "reason",
    ["x-riskgate-score"] = "score",
    ["x-riskgate-domain"] = "domain",
    ["x-riskgate-suggestion"] = "suggestion",
    ["x-riskgate-account"] = "account",
    ["x-riskgate-key-id"] = "key_id",
    ["x-riskgate-plan"] = "plan",
    ["www-authenticate"] = "challenge",
    ["retry-after"] = "retry_after",
    ["x-did-you-mean"] = "did_you_mean",
}

local function ask(txn)
    local received = txn.http:req_get_headers()
    local headers = {
        ["x-original-method"] = { txn.f:method() },
        ["x-original-uri"] = { txn.f:url() },
        ["x-forwarded-for"] = { txn.f:src() },
    }
    for _, name in ipairs(SENT) do
        if received[name] then
            headers[name] = {}
            for _, value in pairs(received[name]) do
                table.insert(headers[name], value)
            end
        end
    end
    local options = { url = AUTHZ_URL, headers = headers, timeout = TIMEOUT_MS }
    local length = txn.f:req_body_size()
    if length == 0 then
        return core.httpclient():get(options)
    end
    local body = string.sub(txn.f:req_body() or "", 1, MAX_BODY_BYTES + 1)
    if #body < length then
        -- riskgate reads the first 64 KiB of a longer body. What HAProxy lacks of them is filled, so
        -- that riskgate sees that the body is cut.
        body = body .. string.rep("x", MAX_BODY_BYTES + 1 - #body)
    end
    options.body = body
    -- With its length, riskgate knows at once whether the body is short.
    headers["content-length"] = { tostring(#body) }
    return core.httpclient():post(options)
end

core.register_action("riskgate", { "http-req" }, function(txn)
    local answer = ask(txn)
    -- Without an answer, no variable is set, and the user passes.
    if not answer or not answer.status then
        return
    end
    txn:set_var("txn.riskgate_status", answer.status)
    txn:set_var("txn.riskgate_body", answer.body)
    for field, name in pairs(ANSWERED) do
        local values = answer.headers[field]
        if values then
            txn:set_var("txn.riskgate_" .. name, values[0])
        end
    end
end, 0)
