//! The request that crosses: what is set, what is dropped, and what passes untouched.

use super::{Case, Group, Saw};
use crate::harness::{Request, get};

const CHECK: &str = "/v1/check/a@b.com";

fn asked() -> Request {
    get(CHECK).key("{key}")
}

fn saw() -> Saw {
    Saw::line("GET /v1/check/a%40b.com HTTP/1.1")
}

/// This field of the caller's does not cross.
fn dropped(name: &str, field: &str, value: &str) -> Case {
    Case::passed(name, asked().with(field, value), saw())
}

/// It does, as it came.
fn kept(name: &str, field: &str, value: &str) -> Case {
    let line = format!("{field}: {value}");
    Case::passed(name, asked().with(field, value), saw().field(&line))
}

#[test]
fn the_upstream_learns_who_calls_from_us_alone() {
    Group::new("forwarded", 8).run([ours(), one_hop(), theirs()].concat());
}

#[test]
fn a_trusted_proxy_is_believed_about_the_client_alone() {
    let trusting = |setup: crate::harness::Setup| {
        let proxies: Vec<String> = (1..=20).map(|at| format!("127.9.0.{at}")).collect();
        setup
            .set("listen.trusted_proxies", &format!("{proxies:?}"))
            .text("upstream.host", "check.internal")
    };
    let inside = || saw().field("Host: check.internal");
    let told = |name, field: &str, value: &str, crosses: &str| {
        Case::passed(
            name,
            asked().with(field, value),
            inside().field(&format!("{field}: {crosses}")),
        )
    };
    let dropped = |name, field: &str| Case::passed(name, asked().with(field, "boss"), inside());
    // The first line is the client's, the second one the proxy's.
    let added = |name, word: &str, lines: [&str; 2], crosses: &str| {
        let field = format!("X-Forwarded-{word}");
        let request = asked().with(&field.to_lowercase(), lines[0]).with(&field, lines[1]);
        Case::passed(name, request, inside().field(&format!("{field}: {crosses}")))
    };
    Group::new("trusted", 9).settings(trusting).run(vec![
        Case::passed("the host is the one that is set", asked(), inside()),
        told(
            "the chain of clients grows",
            "X-Forwarded-For",
            "6.6.6.6, 7.7.7.7",
            "6.6.6.6, 7.7.7.7, {address}",
        ),
        told("the protocol is the proxy's", "X-Forwarded-Proto", "https", "https"),
        told(
            "the host asked for is the proxy's",
            "X-Forwarded-Host",
            "shop.example",
            "shop.example",
        ),
        told("the port is the proxy's", "X-Forwarded-Port", "443", "443"),
        told("a prefix is the proxy's", "X-Forwarded-Prefix", "/a,/b", "/a,/b"),
        told(
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
        dropped("not even a proxy names the account", "X-Riskgate-Account"),
        dropped("not even a proxy sends a folded name", "X_Riskgate_Account"),
        dropped("not even a proxy routes anew", "X-Original-URL"),
        dropped("not even a proxy speaks the other dialect", "Forwarded"),
    ]);
}

fn ours() -> Vec<Case> {
    vec![
        dropped("a forged account", "X-Riskgate-Account", "boss"),
        dropped("a forged key id", "x-riskgate-key-id", "boss"),
        dropped("a forged plan", "X-RISKGATE-PLAN", "boss"),
        dropped("anything in our name", "X-Riskgate-Anything", "boss"),
        dropped("an account under a folded name", "X_Riskgate_Account", "boss"),
        dropped("an account under a half folded name", "X-Riskgate_Account", "boss"),
        dropped("any name with an underscore", "Some_Name", "x"),
        dropped("a forged client", "X-Forwarded-For", "6.6.6.6"),
        dropped("a forged protocol", "X-Forwarded-Proto", "https"),
        dropped("a forged host", "X-Forwarded-Host", "boss.example"),
        dropped("a forged port", "X-Forwarded-Port", "444"),
        dropped("a forged server", "X-Forwarded-Server", "boss"),
        dropped("a forged client of another dialect", "Forwarded", "for=6.6.6.6"),
        dropped("a forged client of nginx", "X-Real-IP", "6.6.6.6"),
        dropped("another target", "X-Original-URL", "/admin"),
        dropped("another target of another name", "X-Rewrite-URL", "/admin"),
        dropped("another method", "X-HTTP-Method-Override", "DELETE"),
        kept("an id that can be seen", "X-Request-Id", "mine-1").has("X-Request-Id", "mine-1"),
        dropped("an id with a space", "X-Request-Id", "mine 1"),
        dropped("an id that is empty", "X-Request-Id", ""),
        dropped("an id of 129 characters", "X-Request-Id", &"i".repeat(129)),
        kept("an id of 128 characters", "X-Request-Id", &"i".repeat(128))
            .has("X-Request-Id", &"i".repeat(128)),
        Case::passed(
            "a forged client in two lines",
            asked().with("X-Forwarded-For", "6.6.6.6").with("x-forwarded-for", "127.0.0.1"),
            saw(),
        ),
        Case::passed(
            "two ids are none",
            asked().with("X-Request-Id", "forged-1").with("X-Request-Id", "mine-1"),
            saw(),
        ),
        Case::passed(
            "a route without a key names none",
            get("/open/door").key("{key}").with("X-Riskgate-Account", "boss"),
            Saw::line("GET /open/door HTTP/1.1").keyless(),
        )
        .counts(0, 0),
    ]
}

fn one_hop() -> Vec<Case> {
    vec![
        dropped("Keep-Alive", "Keep-Alive", "timeout=1000"),
        dropped("Proxy-Connection", "Proxy-Connection", "keep-alive"),
        dropped("TE", "TE", "trailers"),
        dropped("Trailer", "Trailer", "X-Riskgate-Account"),
        dropped("Proxy-Authorization", "Proxy-Authorization", "Basic x"),
        dropped("Upgrade alone", "Upgrade", "websocket"),
        dropped("HTTP2-Settings", "HTTP2-Settings", "AAMAAABkAAQAAP__"),
        dropped("Expect", "Expect", "100-continue"),
        Case::passed(
            "what the caller declares to be of one hop",
            asked().with("Connection", "X-Hop").with("X-Hop", "1"),
            saw(),
        ),
    ]
}

fn theirs() -> Vec<Case> {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    vec![
        kept("traceparent", "traceparent", trace),
        kept("tracestate", "tracestate", "a=b"),
        kept("Accept-Language", "Accept-Language", "de"),
        kept("User-Agent", "User-Agent", "test/1"),
        kept("a header that nobody knows", "X-Anything", "a, b;c=\"d\""),
        kept("If-None-Match", "If-None-Match", "\"7\""),
        Case::passed(
            "two headers of one name",
            asked().with("X-Two", "1").with("X-Two", "2"),
            saw().field("X-Two: 1").field("X-Two: 2"),
        ),
        kept("a cookie", "Cookie", "a=b; c=d"),
    ]
}
