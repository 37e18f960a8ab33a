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
