//! The forwarded request: which fields riskgate sets, drops, or forwards unchanged.

use super::{Case, CaseGroup, ForwardedRequest};
use crate::harness::{Request, get};

const CHECK: &str = "/v1/check/a@b.com";

fn check_request() -> Request {
    get(CHECK).key("{key}")
}

fn forwarded_check() -> ForwardedRequest {
    ForwardedRequest::with_request_line("GET /v1/check/a%40b.com HTTP/1.1")
}

/// riskgate does not forward this field of the client.
fn dropped_field_case(name: &str, field: &str, value: &str) -> Case {
    Case::forwarded(name, check_request().with_header(field, value), forwarded_check())
}

/// riskgate forwards this field unchanged.
fn kept_field_case(name: &str, field: &str, value: &str) -> Case {
    let line = format!("{field}: {value}");
    Case::forwarded(
        name,
        check_request().with_header(field, value),
        forwarded_check().with_field(&line),
    )
}

#[test]
fn the_upstream_gets_identity_and_forwarding_fields_only_from_riskgate() {
    CaseGroup::new("forwarded", 8)
        .run([forged_field_cases(), hop_by_hop_cases(), forwarded_unchanged_cases()].concat());
}

#[test]
fn a_trusted_proxy_may_set_only_forwarding_fields() {
    let trusting = |setup: crate::harness::Setup| {
        let proxies: Vec<String> = (1..=20).map(|at| format!("127.9.0.{at}")).collect();
        setup
            .set("listen.trusted_proxies", &format!("{proxies:?}"))
            .set_text("upstream.host", "check.internal")
    };
    let inside = || forwarded_check().with_field("Host: check.internal");
    let replaced = |name, field: &str, value: &str, forwarded: &str| {
        Case::forwarded(
            name,
            check_request().with_header(field, value),
            inside().with_field(&format!("{field}: {forwarded}")),
        )
    };
    let dropped = |name, field: &str| {
        Case::forwarded(name, check_request().with_header(field, "boss"), inside())
    };
    // The client's line comes first, then the proxy's.
    let added = |name, word: &str, lines: [&str; 2], forwarded: &str| {
        let field = format!("X-Forwarded-{word}");
        let request = check_request()
            .with_header(&field.to_lowercase(), lines[0])
            .with_header(&field, lines[1]);
        Case::forwarded(name, request, inside().with_field(&format!("{field}: {forwarded}")))
    };
    CaseGroup::new("trusted", 9).with_settings(trusting).run(vec![
        Case::forwarded("the host is the one that is set", check_request(), inside()),
        replaced(
            "the chain of clients grows",
            "X-Forwarded-For",
            "6.6.6.6, 7.7.7.7",
            "6.6.6.6, 7.7.7.7, {address}",
        ),
        replaced("the protocol is the proxy's", "X-Forwarded-Proto", "https", "https"),
        replaced(
            "the host asked for is the proxy's",
            "X-Forwarded-Host",
            "shop.example",
            "shop.example",
        ),
        replaced("the port is the proxy's", "X-Forwarded-Port", "443", "443"),
        replaced("a prefix is the proxy's", "X-Forwarded-Prefix", "/a,/b", "/a,/b"),
        replaced(
            "empty members are no clients",
            "X-Forwarded-For",
            ", 6.6.6.6,,",
            "6.6.6.6, {address}",
        ),
        added(
            "a second line of clients",
            "For",
            ["6.6.6.6", "7.7.7.7"],
            "6.6.6.6, 7.7.7.7, {address}",
        ),
        added("a second line of protocols", "Proto", ["gopher", "http, https"], "https"),
        added("a second line of hosts", "Host", ["evil.test", "shop.test"], "shop.test"),
        added("a second line of ports", "Port", ["1", "443"], "443"),
        added("a second line of prefixes", "Prefix", ["/evil", "/shop"], "/shop"),
        dropped("a trusted proxy cannot set the account", "X-Riskgate-Account"),
        dropped("a trusted proxy cannot send a name with underscores", "X_Riskgate_Account"),
        dropped("a trusted proxy cannot rewrite the target", "X-Original-URL"),
        dropped("a Forwarded field of a trusted proxy is dropped", "Forwarded"),
    ]);
}

fn forged_field_cases() -> Vec<Case> {
    vec![
        dropped_field_case("a forged account", "X-Riskgate-Account", "boss"),
        dropped_field_case("a forged key id", "x-riskgate-key-id", "boss"),
        dropped_field_case("a forged plan", "X-RISKGATE-PLAN", "boss"),
        dropped_field_case("any other X-Riskgate field", "X-Riskgate-Anything", "boss"),
        dropped_field_case(
            "an account under a name with underscores",
            "X_Riskgate_Account",
            "boss",
        ),
        dropped_field_case(
            "an account under a name with one underscore",
            "X-Riskgate_Account",
            "boss",
        ),
        dropped_field_case("any name with an underscore", "Some_Name", "x"),
        dropped_field_case("a forged client", "X-Forwarded-For", "6.6.6.6"),
        dropped_field_case("a forged protocol", "X-Forwarded-Proto", "https"),
        dropped_field_case("a forged host", "X-Forwarded-Host", "boss.example"),
        dropped_field_case("a forged port", "X-Forwarded-Port", "444"),
        dropped_field_case("a forged server", "X-Forwarded-Server", "boss"),
        dropped_field_case("a forged client in Forwarded", "Forwarded", "for=6.6.6.6"),
        dropped_field_case("a forged client in X-Real-IP", "X-Real-IP", "6.6.6.6"),
        dropped_field_case("another target", "X-Original-URL", "/admin"),
        dropped_field_case("another target of another name", "X-Rewrite-URL", "/admin"),
        dropped_field_case("another method", "X-HTTP-Method-Override", "DELETE"),
        kept_field_case("a request id of visible characters", "X-Request-Id", "mine-1")
            .expect_header("X-Request-Id", "mine-1"),
        dropped_field_case("an id with a space", "X-Request-Id", "mine 1"),
        dropped_field_case("an id that is empty", "X-Request-Id", ""),
        dropped_field_case("an id of 129 characters", "X-Request-Id", &"i".repeat(129)),
        dropped_field_case("an id with an address", "X-Request-Id", "joe@gmail.com"),
        dropped_field_case("an id with an encoded character", "X-Request-Id", "a%20b"),
        dropped_field_case("an id with an entity", "X-Request-Id", "req&1"),
        dropped_field_case("an id with an escape", "X-Request-Id", "req\\u0040"),
        kept_field_case("an id of 128 characters", "X-Request-Id", &"i".repeat(128))
            .expect_header("X-Request-Id", &"i".repeat(128)),
        Case::forwarded(
            "a forged client in two lines",
            check_request()
                .with_header("X-Forwarded-For", "6.6.6.6")
                .with_header("x-forwarded-for", "127.0.0.1"),
            forwarded_check(),
        ),
        Case::forwarded(
            "two request ids are ignored",
            check_request()
                .with_header("X-Request-Id", "forged-1")
                .with_header("X-Request-Id", "mine-1"),
            forwarded_check(),
        ),
        Case::forwarded(
            "a route without a key names none and passes none",
            get("/open/item").key("{key}").with_header("X-Riskgate-Account", "boss"),
            ForwardedRequest::with_request_line("GET /open/item HTTP/1.1").without_key(),
        )
        .expect_counts(0, 0),
    ]
}

fn hop_by_hop_cases() -> Vec<Case> {
    vec![
        dropped_field_case("Keep-Alive", "Keep-Alive", "timeout=1000"),
        dropped_field_case("Proxy-Connection", "Proxy-Connection", "keep-alive"),
        dropped_field_case("TE", "TE", "trailers"),
        dropped_field_case("Trailer", "Trailer", "X-Riskgate-Account"),
        dropped_field_case("Proxy-Authorization", "Proxy-Authorization", "Basic x"),
        dropped_field_case("Upgrade alone", "Upgrade", "websocket"),
        dropped_field_case("HTTP2-Settings", "HTTP2-Settings", "AAMAAABkAAQAAP__"),
        dropped_field_case("Expect", "Expect", "100-continue"),
        Case::forwarded(
            "what the caller declares to be of one hop",
            check_request().with_header("Connection", "X-Hop").with_header("X-Hop", "1"),
            forwarded_check(),
        ),
    ]
}

fn forwarded_unchanged_cases() -> Vec<Case> {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    vec![
        kept_field_case("traceparent", "traceparent", trace),
        kept_field_case("tracestate", "tracestate", "a=b"),
        kept_field_case("Accept-Language", "Accept-Language", "de"),
        kept_field_case("User-Agent", "User-Agent", "test/1"),
        kept_field_case("an unknown header", "X-Anything", "a, b;c=\"d\""),
        kept_field_case("If-None-Match", "If-None-Match", "\"7\""),
        Case::forwarded(
            "two headers of one name",
            check_request().with_header("X-Two", "1").with_header("X-Two", "2"),
            forwarded_check().with_field("X-Two: 1").with_field("X-Two: 2"),
        ),
        kept_field_case("a cookie", "Cookie", "a=b; c=d"),
    ]
}
