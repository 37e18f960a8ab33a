//! What crosses to the checking service and what comes back.

use crate::harness::{Gateway, Seen, Setup, StandIn, Step, answer, get, request};

/// A gateway in front of this stand-in, and a key.
pub fn before(stand_in: &StandIn) -> (Gateway, String) {
    let gateway = Setup::new().upstream(&[stand_in.address]).start();
    let key = gateway.key("acme", &["--plan", "pro"]);
    (gateway, key)
}

pub fn playing(
    play: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static,
) -> (StandIn, Gateway, String) {
    let stand_in = StandIn::playing(play);
    let (gateway, key) = before(&stand_in);
    (stand_in, gateway, key)
}

#[test]
fn the_upstream_s_answer_comes_back_as_it_was() {
    let body = r#"{"email":"user@example.com","ok":true}"#;
    let (_stand_in, gateway, key) = playing(move |_| {
        let headers = "Content-Type: application/json; charset=utf-8\r\nETag: \"7\"\r\n\
                       Content-Language: en\r\nCache-Control: max-age=60\r\n";
        vec![Step::Send(answer(203, headers, body))]
    });
    let answer = gateway.get("/v1/check/user@example.com", &key).expect(203);
    assert_eq!(answer.text(), body);
    for (name, value) in [
        ("Content-Type", "application/json; charset=utf-8"),
        ("ETag", "\"7\""),
        ("Content-Language", "en"),
        ("Cache-Control", "max-age=60"),
        ("X-Riskgate-Source", "upstream"),
        ("RateLimit-Policy", "\"monthly\";q=10000"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    assert_eq!(answer.remaining(), 9999);
    assert!(answer.has("X-Request-Id") && !answer.has("X-Fail-Open"));
}

#[test]
fn an_answer_without_cache_control_is_not_stored() {
    let (gateway, key) = before(&StandIn::start());
    let answer = gateway.get("/v1/check/a@b.com", &key).expect(200);
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
}

#[test]
fn a_chunked_answer_comes_back_whole() {
    let (_stand_in, gateway, key) = playing(|_| {
        vec![Step::Send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n".to_vec(),
        )]
    });
    let mut connection = gateway.connect();
    for _ in 0..3 {
        let answer = connection.ask(&get("/v1/check/a@b.com").key(&key)).expect(200);
        assert!(answer.complete);
        assert_eq!(answer.text(), "abcdefg");
    }
}

#[test]
fn a_head_request_crosses_as_one() {
    let (stand_in, gateway, key) =
        playing(|_| vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n".to_vec())]);
    let mut connection = gateway.connect();
    let head = connection.ask(&request("HEAD", "/v1/check/a@b.com").key(&key)).expect(200);
    assert_eq!(head.header("Content-Length"), Some("42"));
    assert_eq!(stand_in.last().line(), "HEAD /v1/check/a%40b.com HTTP/1.1");
    connection.ask(&get("/v1/usage").key(&key)).expect(200);
}

#[test]
fn every_spelling_of_a_target_crosses_in_one_canonical_form() {
    let stand_in = StandIn::start();
    let (gateway, key) = before(&stand_in);
    for (written, canonical) in [
        ("user@example.com", "user%40example.com"),
        ("user%40example.com", "user%40example.com"),
        ("us%65r%40example%2ecom", "user%40example.com"),
        ("User@Example.com", "User%40Example.com"),
        ("a+b@c.de", "a%2Bb%40c.de"),
        ("a%20b@c.de", "a%20b%40c.de"),
        ("a~b_c-d.e@f.gh", "a~b_c-d.e%40f.gh"),
        ("b%c3%bccher.de", "b%C3%BCcher.de"),
        ("100%25@c.de", "100%25%40c.de"),
        ("a:b;c=d,e!f$g&h'i(j)k*l@m.no", "a%3Ab%3Bc%3Dd%2Ce%21f%24g%26h%27i%28j%29k%2Al%40m.no"),
        ("example.com", "example.com"),
        ("a@b.com?q=1&r=%2F%zz", "a%40b.com?q=1&r=%2F%zz"),
        ("a@b.com?", "a%40b.com?"),
        ("a%3Fb@c.de", "a%3Fb%40c.de"),
        ("a%5Cb@c.de", "a%5Cb%40c.de"),
    ] {
        gateway.get(format!("/v1/check/{written}"), &key).expect(200);
        let line = format!("GET /v1/check/{canonical} HTTP/1.1");
        assert_eq!(stand_in.last().line(), line, "{written}");
    }
}

#[test]
fn a_target_that_is_no_single_segment_of_text_never_crosses() {
    let stand_in = StandIn::start();
    let (gateway, key) = before(&stand_in);
    let long = format!("/v1/check/{}", "a".repeat(1025));
    for (path, status) in [
        ("/v1/check/a%2Fb", 422),
        ("/v1/check/..%2Fadmin", 422),
        ("/v1/check/a%00b", 422),
        ("/v1/check/a%0D%0Ab", 422),
        ("/v1/check/a%7f", 422),
        ("/v1/check/a%C2%85b", 422),
        ("/v1/check/a%ff", 422),
        ("/v1/check/a%4", 422),
        ("/v1/check/%", 422),
        (long.as_str(), 422),
        ("/v1/check/..", 404),
        ("/v1/check/%2e%2e", 404),
        ("/v1/check/a/b", 404),
        ("/v1/check//a", 404),
        ("/v1/check/", 404),
        ("/v1/check", 404),
        ("//v1/check/a", 404),
        ("/v1/check/../check/a", 404),
        ("/v1/check%2Fa", 404),
        ("v1/check/a", 404),
    ] {
        let answer = gateway.get(path, &key);
        assert_eq!(answer.status, status, "{path}");
        if status == 422 {
            assert!(answer.json()["detail"].as_str().unwrap().starts_with("expected"), "{path}");
        }
    }
    gateway.get(format!("/v1/check/{}", "a".repeat(1024)), &key).expect(200);
    assert_eq!(stand_in.count(), 1);
}

#[test]
fn who_may_not_pass_never_reaches_the_upstream() {
    let stand_in = StandIn::start();
    let gateway = Setup::new().upstream(&[stand_in.address]).set("plans.free", "1").start();
    let key = gateway.key("acme", &["--origin", "https://app.example.com"]);
    let check = || get("/v1/check/a@b.com");
    gateway.ask(&check()).expect(401);
    gateway.ask(&check().key("rg_00000000000000000000000000000000")).expect(401);
    gateway.ask(&check().key(&key).with("Origin", "https://evil.example")).expect(403);
    gateway.ask(&request("POST", "/v1/check/a@b.com").key(&key)).expect(405);
    gateway.ask(&request("OPTIONS", "/v1/check/a@b.com")).expect(204);
    gateway.get("/v1/usage", &key).expect(200);
    gateway.domain("first.test", &key).expect(200);
    gateway.ask(&check().key(&key)).expect(429);
    assert_eq!(stand_in.count(), 0);
    assert_eq!(stand_in.connections(), 0);
}

#[test]
fn the_upstream_learns_who_calls_from_us_alone() {
    let stand_in = StandIn::start();
    let gateway = Setup::new().upstream(&[stand_in.address]).start();
    let (key, id) = gateway.key_with_id("acme", &["--plan", "pro"]);
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let forged = get("/v1/check/a@b.com")
        .key(&key)
        .with("X-Riskgate-Account", "boss")
        .with("x-riskgate-key-id", "boss")
        .with("X-RISKGATE-PLAN", "boss")
        .with("X-Riskgate-Anything", "boss")
        .with("X-Forwarded-For", "6.6.6.6")
        .with("X-Forwarded-Proto", "https")
        .with("X-Forwarded-Host", "boss.example")
        .with("Forwarded", "for=6.6.6.6")
        .with("X-Real-IP", "6.6.6.6")
        .with("X-Request-Id", "mine-1")
        .with("traceparent", traceparent)
        .with("tracestate", "a=b")
        .with("Accept-Language", "de")
        .with("User-Agent", "test/1");
    let answer = gateway.ask(&forged).expect(200);
    assert_eq!(answer.header("X-Request-Id"), Some("mine-1"));
    let seen = stand_in.last();
    for (name, value) in [
        ("X-Riskgate-Account", "acme"),
        ("X-Riskgate-Key-Id", id.as_str()),
        ("X-Riskgate-Plan", "pro"),
        ("X-Request-Id", "mine-1"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "gate.test"),
        ("Host", stand_in.address.to_string().as_str()),
        ("traceparent", traceparent),
        ("tracestate", "a=b"),
        ("Accept-Language", "de"),
        ("User-Agent", "test/1"),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
    let text = seen.head.to_lowercase();
    assert!(!text.contains("authorization") && !text.contains(&key.to_lowercase()), "{text}");
    assert!(!text.contains("boss") && !text.contains("6.6.6.6"), "{text}");
}

#[test]
fn a_new_request_id_is_the_same_on_both_sides() {
    let stand_in = StandIn::start();
    let (gateway, key) = before(&stand_in);
    let answer = gateway.get("/v1/check/a@b.com", &key).expect(200);
    assert_eq!(answer.header("X-Request-Id"), Some(stand_in.last().header("X-Request-Id")));
}

#[test]
fn forwarding_headers_are_kept_from_a_trusted_proxy_and_the_host_can_be_set() {
    let stand_in = StandIn::start();
    let gateway = Setup::new()
        .upstream(&[stand_in.address])
        .set("listen.trusted_proxies", "[\"127.0.0.1\"]")
        .text("upstream.host", "check.internal")
        .start();
    let key = gateway.key("acme", &[]);
    let request = get("/v1/check/a@b.com")
        .key(&key)
        .with("X-Forwarded-For", "6.6.6.6")
        .with("X-Forwarded-Proto", "https")
        .with("X-Forwarded-Host", "shop.example");
    gateway.ask(&request).expect(200);
    let seen = stand_in.last();
    assert_eq!(seen.header("X-Forwarded-For"), "6.6.6.6, 127.0.0.1");
    assert_eq!(seen.header("X-Forwarded-Proto"), "https");
    assert_eq!(seen.header("X-Forwarded-Host"), "shop.example");
    assert_eq!(seen.header("Host"), "check.internal");
}

#[test]
fn what_is_not_the_upstream_s_to_say_does_not_come_back() {
    let (_stand_in, gateway, key) = playing(|_| {
        let headers = "Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nServer: secret/1.0\r\n\
            Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n\
            Access-Control-Expose-Headers: X-Secret\r\nX-Riskgate-Source: me\r\n\
            X-Riskgate-Account: x\r\nX-Request-Id: theirs\r\nX-Fail-Open: true\r\n\
            RateLimit: \"other\";r=1;t=1\r\nRateLimit-Policy: \"other\";q=1\r\n\
            X-Other: stays\r\n";
        vec![Step::Send(answer(200, headers, "{}"))]
    });
    let origin = "https://app.example.com";
    let request = get("/v1/check/a@b.com").key(&key).with("Origin", origin);
    let answer = gateway.ask(&request.with("X-Request-Id", "mine")).expect(200);
    for name in ["Set-Cookie", "Access-Control-Allow-Credentials", "X-Riskgate-Account"] {
        assert!(!answer.has(name), "{name}");
    }
    assert_ne!(answer.header("Server"), Some("secret/1.0"));
    assert_eq!(answer.header("Access-Control-Allow-Origin"), Some(origin));
    assert!(!answer.header("Access-Control-Expose-Headers").unwrap().contains("Secret"));
    assert_eq!(answer.header("X-Riskgate-Source"), Some("upstream"));
    assert_eq!(answer.header("X-Request-Id"), Some("mine"));
    assert_eq!(answer.header("X-Other"), Some("stays"));
    assert_eq!(answer.header("RateLimit-Policy"), Some("\"monthly\";q=10000"));
    assert!(!answer.has("X-Fail-Open"), "a 200 is no failure");
}

#[test]
fn the_upstream_s_own_refusals_pass_and_its_failures_say_fail_open() {
    let (_stand_in, gateway, key) = playing(|seen| {
        let status = seen.line().split(['=', ' ']).nth(2).unwrap().parse().unwrap();
        vec![Step::Send(answer(status, "Content-Type: application/problem+json\r\n", "{\"n\":1}"))]
    });
    for (status, fails_open) in [
        (200, None),
        (201, None),
        (301, None),
        (400, None),
        (401, None),
        (404, None),
        (422, None),
        (429, Some("true")),
        (500, Some("true")),
        (502, Some("true")),
        (503, Some("true")),
        (599, Some("true")),
    ] {
        let answer = gateway.get(format!("/v1/check/a@b.com?status={status}"), &key);
        assert_eq!(answer.status, status);
        assert_eq!(answer.text(), "{\"n\":1}", "{status}");
        assert_eq!(answer.header("X-Fail-Open"), fails_open, "{status}");
        assert_eq!(answer.header("X-Riskgate-Source"), Some("upstream"), "{status}");
        assert_eq!(answer.header("Content-Type"), Some("application/problem+json"));
    }
    assert_eq!(gateway.month_count(&key), 12, "the upstream served every one of these calls");
}

#[test]
fn an_upgrade_is_not_passed_on() {
    let stand_in = StandIn::start();
    let (gateway, key) = before(&stand_in);
    let request = get("/v1/check/a@b.com")
        .key(&key)
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket");
    gateway.ask(&request).expect(200);
    let head = stand_in.last().head.to_lowercase();
    assert!(!head.contains("upgrade"), "{head}");
}
