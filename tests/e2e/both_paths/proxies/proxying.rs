//! Requests that riskgate forwards to the upstream server, and the responses that it returns.

use crate::harness::{
    Gateway, MockUpstream, ReceivedRequest, Setup, Step, get, request, response_bytes,
};

/// A gateway in front of this mock upstream server, and a key.
pub fn gateway_in_front_of(upstream: &MockUpstream) -> (Gateway, String) {
    let gateway = Setup::new().with_upstreams(&[upstream.address]).start();
    let key = gateway.create_active_key("acme", &["--plan", "pro"]);
    (gateway, key)
}

pub fn gateway_with_script(
    script: impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static,
) -> (MockUpstream, Gateway, String) {
    let upstream = MockUpstream::with_script(script);
    let (gateway, key) = gateway_in_front_of(&upstream);
    (upstream, gateway, key)
}

#[test]
fn the_client_gets_the_upstreams_status_body_and_allowed_fields() {
    let body = r#"{"email":"user@example.com","ok":true}"#;
    let (_stand_in, gateway, key) = gateway_with_script(move |_| {
        let headers = "Content-Type: application/json; charset=utf-8\r\nETag: \"7\"\r\n\
                       Content-Language: en\r\nCache-Control: max-age=60\r\n";
        vec![Step::Send(response_bytes(203, headers, body))]
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
    assert_eq!(answer.rate_limit_remaining(), 9999);
    assert!(answer.has_header("X-Request-Id") && !answer.has_header("X-Fail-Open"));
}

#[test]
fn hop_by_hop_fields_of_the_upstream_stay_with_riskgate() {
    let fields = ["Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade", "HTTP2-Settings"];
    let (_stand_in, gateway, key) = gateway_with_script(move |_| {
        let mut headers = String::from("X-Kept: yes\r\nConnection: X-Listed\r\nX-Listed: x\r\n");
        for name in fields {
            headers += &format!("{name}: x\r\n");
        }
        vec![Step::Send(response_bytes(200, &headers, "body"))]
    });
    let answer = gateway.get("/v1/check/a@b.com", &key).expect(200);
    assert_eq!((answer.header("X-Kept"), answer.text().as_str()), (Some("yes"), "body"));
    for name in fields.iter().chain(&["X-Listed"]) {
        assert!(!answer.has_header(name), "{name}");
    }
}

#[test]
fn the_client_gets_a_chunked_upstream_response_complete() {
    let (_stand_in, gateway, key) = gateway_with_script(|_| {
        vec![Step::Send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n".to_vec(),
        )]
    });
    let mut connection = gateway.connect();
    for _ in 0..3 {
        let answer = connection.send_request(&get("/v1/check/a@b.com").key(&key)).expect(200);
        assert!(answer.is_complete);
        assert_eq!(answer.text(), "abcdefg");
    }
}

#[test]
fn a_head_request_is_forwarded_as_head() {
    let (upstream, gateway, key) = gateway_with_script(|_| {
        vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n".to_vec())]
    });
    let mut connection = gateway.connect();
    let head = connection.send_request(&request("HEAD", "/v1/check/a@b.com").key(&key)).expect(200);
    assert_eq!(head.header("Content-Length"), Some("42"));
    assert_eq!(upstream.last_request().request_line(), "HEAD /v1/check/a%40b.com HTTP/1.1");
    connection.send_request(&get("/v1/usage").key(&key)).expect(200);
}

#[test]
fn a_refused_request_never_reaches_the_upstream() {
    let upstream = MockUpstream::start();
    let gateway = Setup::new().with_upstreams(&[upstream.address]).set("plans.free", "1").start();
    let key = gateway.create_active_key("acme", &["--origin", "https://app.example.com"]);
    let check = || get("/v1/check/a@b.com");
    gateway.send_request(&check()).expect(401);
    gateway.send_request(&check().key("rg_00000000000000000000000000000000")).expect(401);
    gateway
        .send_request(&check().key(&key).with_header("Origin", "https://evil.example"))
        .expect(403);
    gateway.send_request(&request("POST", "/v1/check/a@b.com").key(&key)).expect(405);
    gateway.send_request(&request("OPTIONS", "/v1/check/a@b.com")).expect(204);
    gateway.get("/v1/usage", &key).expect(200);
    gateway.get_domain("first.test", &key).expect(200);
    gateway.send_request(&check().key(&key)).expect(429);
    assert_eq!(upstream.request_count(), 0);
    assert_eq!(upstream.connection_count(), 0);
}
