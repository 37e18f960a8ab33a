//! What is no request, too much, or too slow: refused at the door, and the connection closed.

use std::time::{Duration, Instant};

use crate::harness::{Answer, Connection, Gateway, PATIENCE, Setup, get, shared};

const BAD: &str = r#"{"error":"bad_request","message":"Malformed request.","detail":null}"#;
const LONG: &str =
    r#"{"error":"uri_too_long","message":"The request target is too long.","detail":null}"#;
const LARGE: &str =
    r#"{"error":"headers_too_large","message":"The request headers are too large.","detail":null}"#;

/// The answer to these bytes, which must be refused and the connection closed.
#[track_caller]
fn refused(gateway: &Gateway, bytes: &[u8], status: u16, body: &str) -> Answer {
    let mut connection = gateway.connect();
    connection.send(bytes);
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let answer = connection.read().unwrap_or_else(|| panic!("no answer to {shown:?}"));
    assert_eq!((answer.status, answer.text().as_str()), (status, body), "{shown:?}");
    assert_eq!(answer.header("Connection"), Some("close"), "{shown:?}");
    assert_eq!(answer.header("Content-Type"), Some("application/json"), "{shown:?}");
    assert_eq!(answer.header("Cache-Control"), Some("no-store"), "{shown:?}");
    assert!(answer.has("X-Request-Id") && answer.has("Content-Length"), "{shown:?}");
    assert!(connection.is_closed(), "{shown:?}");
    answer
}

#[test]
fn what_breaks_the_grammar_is_400_and_closes() {
    let (gateway, _) = shared();
    let host = "Host: gate.test\r\n";
    for text in [
        "GARBAGE\r\n\r\n".to_owned(),
        format!("GET /v1/usage\r\n{host}\r\n"),
        "GET /v1/usage HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /v1/usage HTTP/1.1\r\n{host}{host}\r\n"),
        "GET /v1/usage HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(),
        format!("GET /v1/usage HTTP/1.1\n{host}\n"),
        format!("GET /v1/usage HTTP/1.1\r\n{host}A: b\r c\r\n\r\n"),
        format!("GET /v1/usage HTTP/1.1\r\n{host}A: b\0c\r\n\r\n"),
        format!("GET /v1/usage HTTP/1.1\r\n{host}A : b\r\n\r\n"),
        format!("GET /v1/usage HTTP/1.1\r\n{host} folded\r\n\r\n"),
        format!("GET /v1/usage HTTP/1.1\r\n{host}no colon\r\n\r\n"),
        format!("GET /v1/usage HTTP/1.1\r\n{host}: empty\r\n\r\n"),
        format!("GET  /v1/usage HTTP/1.1\r\n{host}\r\n"),
        format!("GET /v1/usage  HTTP/1.1\r\n{host}\r\n"),
        format!("GET /v1/usage x HTTP/1.1\r\n{host}\r\n"),
        format!("GET /v1/\tusage HTTP/1.1\r\n{host}\r\n"),
        format!("GET /v1/\0usage HTTP/1.1\r\n{host}\r\n"),
        format!("GET /v1/usage#a HTTP/1.1\r\n{host}\r\n"),
        format!("GET /v1/usage HTTP/2.0\r\n{host}\r\n"),
        format!("GET /v1/usage HTTP/1.2\r\n{host}\r\n"),
        format!("GET /v1/usage http/1.1\r\n{host}\r\n"),
        format!("G@T /v1/usage HTTP/1.1\r\n{host}\r\n"),
        format!("GET http://other.test/v1/usage HTTP/1.1\r\n{host}\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ] {
        refused(gateway, text.as_bytes(), 400, BAD);
    }
}

#[test]
fn what_two_readers_could_frame_differently_is_400_and_closes() {
    let (gateway, key) = shared();
    let start = format!("POST /v1/usage HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n");
    let smuggled = "GET /v1/public/top-domains HTTP/1.1\r\nHost: a\r\n\r\n";
    for framing in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 0\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Connection: close, Authorization\r\n",
        "Connection: X-Riskgate-Account\r\n",
        "Connection: Content-Length\r\n",
    ] {
        let text = format!("{start}{framing}\r\n0\r\n\r\n{smuggled}");
        refused(gateway, text.as_bytes(), 400, BAD);
    }
    // GET carries no body.
    let text =
        format!("GET /v1/usage HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc{smuggled}");
    refused(gateway, text.as_bytes(), 400, BAD);
}

#[test]
fn a_target_that_is_too_long_is_414_and_closes() {
    let (gateway, key) = shared();
    let path = |length: usize| format!("/v1/public/domain/{}", "a".repeat(length - 18));
    gateway.get(path(2048), key).expect(422);
    refused(gateway, &get(path(2049)).key(key).bytes(), 414, LONG);
    refused(gateway, &get(path(12_000)).key(key).bytes(), 414, LONG);
    // It need not be complete to be too long.
    refused(gateway, format!("GET {}", path(40_000)).as_bytes(), 414, LONG);
    let query = format!("/v1/usage?{}", "q".repeat(2048));
    refused(gateway, &get(query).key(key).bytes(), 414, LONG);
}

#[test]
fn headers_that_are_too_large_or_too_many_are_431_and_close() {
    let (gateway, key) = shared();
    let with = |size: usize| get("/v1/usage").key(key).with("X-Big", &"b".repeat(size));
    gateway.ask(&with(15_000)).expect(200);
    refused(gateway, &with(16_400).bytes(), 431, LARGE);
    refused(gateway, &with(200_000).bytes(), 431, LARGE);
    let many = |count: usize| {
        (0..count).fold(get("/v1/usage").key(key), |r, at| r.with(&format!("X-{at}"), "v"))
    };
    gateway.ask(&many(62)).expect(200);
    refused(gateway, &many(63).bytes(), 431, LARGE);
    let endless = format!("GET /v1/usage HTTP/1.1\r\nHost: a\r\nX-Endless: {}", "e".repeat(20_000));
    refused(gateway, endless.as_bytes(), 431, LARGE);
}

#[test]
fn connect_and_trace_are_405() {
    let (gateway, _) = shared();
    for line in ["CONNECT other.test:443", "TRACE /v1/usage"] {
        let mut connection = gateway.connect();
        connection.send(format!("{line} HTTP/1.1\r\nHost: other.test:443\r\n\r\n").as_bytes());
        let answer = connection.read().expect("an answer").expect(405);
        assert_eq!(answer.json()["error"], "method_not_allowed");
        assert!(answer.has("Allow"));
    }
}

#[test]
fn a_refusal_at_the_door_follows_the_answers_before_it() {
    let (gateway, key) = shared();
    let mut connection = gateway.connect();
    let good = get("/v1/usage").key(key).bytes();
    connection.send(&[&good[..], &good[..], b"NONSENSE\r\n\r\n", &good[..]].concat());
    assert_eq!(connection.read().unwrap().status, 200);
    assert_eq!(connection.read().unwrap().status, 200);
    assert_eq!(connection.read().unwrap().status, 400);
    assert!(connection.is_closed(), "what follows can't be trusted");
}

#[test]
fn one_empty_line_before_a_request_is_tolerated() {
    let (gateway, key) = shared();
    let mut connection = gateway.connect();
    connection.send(&[b"\r\n", &get("/v1/usage").key(key).bytes()[..]].concat());
    assert_eq!(connection.read().unwrap().status, 200);
}

#[test]
fn an_absolute_target_for_this_host_is_no_route() {
    let (gateway, key) = shared();
    // A path without a leading slash is 404; it never goes anywhere else either.
    gateway.get("http://gate.test/v1/usage", key).expect(404);
}

#[test]
fn http_1_0_is_answered_and_closed() {
    let (gateway, key) = shared();
    let mut connection = gateway.connect();
    let text = format!("GET /v1/usage HTTP/1.0\r\nAuthorization: Bearer {key}\r\n\r\n");
    connection.send(text.as_bytes());
    assert_eq!(connection.read().expect("an answer").status, 200);
    assert!(connection.is_closed());
}

#[test]
fn a_client_that_asks_to_close_is_closed() {
    let (gateway, key) = shared();
    let mut connection = gateway.connect();
    let answer = connection.ask(&get("/v1/usage").key(key).with("Connection", "close"));
    assert_eq!(answer.expect(200).header("Connection"), Some("close"));
    assert!(connection.is_closed());
}

#[test]
fn a_slow_header_is_cut_as_a_whole() {
    let gateway = Setup::new().text("listen.header_timeout", "1s").start();
    let key = gateway.key("acme", &[]);
    let bytes = get("/v1/usage").key(&key).bytes();
    for first in [true, false] {
        let mut connection = gateway.connect();
        if !first {
            connection.ask(&get("/v1/usage").key(&key)).expect(200);
        }
        // Each byte comes in good time; the whole header does not.
        let begun = Instant::now();
        let cut = std::thread::scope(|scope| {
            let slow = scope.spawn(|| trickle(&mut connection, &bytes));
            slow.join().unwrap()
        });
        assert!(cut, "the header came through after {:?}", begun.elapsed());
        assert!(begun.elapsed() < PATIENCE);
    }
    // Who says nothing at all is cut too.
    let mut silent = gateway.connect();
    assert!(silent.is_closed());
}

/// Whether the gateway closes while these bytes come in one by one.
fn trickle(connection: &mut Connection, bytes: &[u8]) -> bool {
    for byte in bytes {
        std::thread::sleep(Duration::from_millis(100));
        if !connection.try_send(&[*byte]) {
            return true;
        }
    }
    connection.read().is_none_or(|answer| answer.status != 200)
}

#[test]
fn an_idle_connection_is_closed_after_its_time() {
    let gateway = Setup::new().text("listen.keepalive_timeout", "1s").start();
    let key = gateway.key("acme", &[]);
    let mut connection = gateway.connect();
    connection.ask(&get("/v1/usage").key(&key)).expect(200);
    assert!(connection.is_closed());
}

#[test]
fn beyond_the_cap_connections_are_closed_and_room_is_used_again() {
    let gateway = Setup::new().set("listen.max_connections", "4").start();
    let key = gateway.key("acme", &[]);
    let usage = get("/v1/usage").key(&key);
    crate::harness::until_true("earlier connections are gone", || {
        gateway.metric("riskgate_connections", &[]) == 0.0
    });
    let mut held: Vec<Connection> = (0..4).map(|_| gateway.connect()).collect();
    for connection in &mut held {
        connection.ask(&usage).expect(200);
    }
    assert!(gateway.connect().try_ask(&usage).is_none(), "a fifth is closed");
    held.pop();
    crate::harness::until_true("the room is used again", || {
        gateway.connect().try_ask(&usage).is_some_and(|answer| answer.status == 200)
    });
    for connection in &mut held {
        connection.ask(&usage).expect(200);
    }
    assert!(gateway.metric("riskgate_connections_refused_total", &[]) >= 1.0);
}
