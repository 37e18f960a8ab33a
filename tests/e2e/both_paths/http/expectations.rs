//! `Expect: 100-continue`: riskgate sends 100 once it wants the body, and a call whose body never
//! comes is not counted.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::http2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, encode_frame,
};
use crate::harness::{
    Gateway, MockUpstream, Setup, Step, TEST_TIMEOUT, free_address, get, response_bytes,
};

const ROUTES: &str = "[[upstream.route]]\nprefix = \"/v1/signup\"\nmethods = [\"POST\"]\n";
const CONTINUE_RESPONSE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// A client that returns every header it receives, including interim responses such as 100.
struct RawClient(BufReader<TcpStream>);

impl RawClient {
    fn open(gateway: &Gateway) -> RawClient {
        let stream = TcpStream::connect(gateway.http).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        RawClient(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// The next header, including interim responses; empty at the end.
    fn read_header(&mut self) -> String {
        let mut header = String::new();
        while !header.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut header).unwrap() == 0 {
                break;
            }
        }
        header
    }

    /// The next response with its body; it must be final.
    fn read_final_response(&mut self) -> (String, String) {
        let header = self.read_header().to_ascii_lowercase();
        let length = header.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.unwrap_or_else(|| panic!("{header:?}")).parse().unwrap();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (header, String::from_utf8(body).unwrap())
    }
}

fn post_expecting_continue(target: &str, key: &str, length: usize) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: gate.test\r\nAuthorization: Bearer {key}\r\n\
         Expect: 100-Continue\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// A loaded machine answers well within a fraction of this time.
const UPSTREAM_DEADLINE: Duration = Duration::from_secs(6);

fn start_gateway_with_key(upstream: &MockUpstream) -> (Gateway, String) {
    let setup = Setup::new().append_toml(ROUTES).with_upstreams(&[upstream.address]);
    let setup = setup.set_text("upstream.deadline", &format!("{}s", UPSTREAM_DEADLINE.as_secs()));
    let gateway = setup.set("listen.h2c", "true").start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it_for_every_body_length() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start_gateway_with_key(&upstream);
    for length in [1, 4, 65_536, 65_537, 500_000] {
        let mut client = RawClient::open(&gateway);
        client.send(post_expecting_continue("/v1/signup", &key, length).as_bytes());
        assert_eq!(client.read_header(), CONTINUE_RESPONSE, "{length}");
        client.send("b".repeat(length).as_bytes());
        let (header, body) = client.read_final_response();
        assert!(header.starts_with("http/1.1 200 "), "{length}: {header}");
        assert!(header.contains("\r\nconnection: keep-alive"), "{length}: {header}");
        assert_eq!(
            (body.as_str(), upstream.last_request().body.len()),
            (r#"{"checked":true}"#, length)
        );
        assert!(upstream.last_request().header_values("Expect").is_empty());
        // The next request on this connection waits for its own 100.
        client.send(post_expecting_continue("/v1/signup", &key, 4).as_bytes());
        assert_eq!(client.read_header(), CONTINUE_RESPONSE, "{length}");
        client.send(b"next");
        assert!(client.read_final_response().0.starts_with("http/1.1 200 "));
    }
    assert_eq!(gateway.get_month_count(&key), 10);
}

#[test]
fn a_client_that_does_not_wait_gets_no_100_continue() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start_gateway_with_key(&upstream);
    let mut client = RawClient::open(&gateway);
    client.send((post_expecting_continue("/v1/signup", &key, 4) + "body").as_bytes());
    assert!(client.read_final_response().0.starts_with("http/1.1 200 "));
    assert_eq!(upstream.last_request().body, b"body");
}

#[test]
fn a_refused_request_gets_its_final_response_and_no_100_continue() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start_gateway_with_key(&upstream);
    for (status, target, key) in [
        (404, "/nowhere", key.as_str()),
        (401, "/v1/signup", "rg_nobody"),
        (405, "/v1/usage", key.as_str()),
    ] {
        for length in [4, 100_000] {
            let mut client = RawClient::open(&gateway);
            client.send(post_expecting_continue(target, key, length).as_bytes());
            let (header, _) = client.read_final_response();
            assert!(header.starts_with(&format!("http/1.1 {status} ")), "{header}");
            // Only the client knows whether a body follows.
            assert!(header.contains("\r\nconnection: close"), "{header}");
            assert_eq!(client.read_header(), "", "the end");
        }
    }
    assert_eq!((upstream.request_count(), gateway.get_month_count(&key)), (0, 0));
}

#[test]
fn with_the_upstream_unreachable_the_client_gets_a_500_and_no_100_continue() {
    let gateway = Setup::new().append_toml(ROUTES).with_upstreams(&[free_address()]).start();
    let key = gateway.create_active_key("acme", &[]);
    let mut client = RawClient::open(&gateway);
    client.send(post_expecting_continue("/v1/signup", &key, 100_000).as_bytes());
    let (header, body) = client.read_final_response();
    assert!(header.starts_with("http/1.1 500 "), "{header}");
    assert!(body.contains("upstream_unavailable"), "{body}");
    assert_eq!(gateway.get_month_count(&key), 0, "refunded");
}

#[test]
fn a_100_continue_of_the_upstream_is_not_forwarded() {
    let both = [CONTINUE_RESPONSE.as_bytes().to_vec(), response_bytes(200, "", "done")].concat();
    let upstream = MockUpstream::with_script(move |_| vec![Step::Send(both.clone())]);
    let (gateway, key) = start_gateway_with_key(&upstream);
    for length in [4, 100_000] {
        let mut client = RawClient::open(&gateway);
        client.send(post_expecting_continue("/v1/signup", &key, length).as_bytes());
        assert_eq!(client.read_header(), CONTINUE_RESPONSE, "{length}");
        client.send("b".repeat(length).as_bytes());
        let (header, body) = client.read_final_response();
        assert!(header.starts_with("http/1.1 200 ") && body == "done", "{length}: {header}{body}");
    }
}

#[test]
fn http_1_0_requests_and_requests_without_a_body_get_no_100_continue() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start_gateway_with_key(&upstream);
    let old = post_expecting_continue("/v1/signup", &key, 4).replace("HTTP/1.1", "HTTP/1.0");
    let mut client = RawClient::open(&gateway);
    client.send((old + "bo").as_bytes());
    client.send(b"dy");
    assert!(client.read_final_response().0.starts_with("http/1.1 200 "));
    let mut client = RawClient::open(&gateway);
    client
        .send(&get("/v1/check/a@b.com").key(&key).with_header("Expect", "100-continue").to_bytes());
    assert!(client.read_final_response().0.starts_with("http/1.1 200 "));
}

/// The frames that begin a POST whose client waits for 100.
fn post_frames_expecting_continue(stream: u32, key: &str) -> Vec<u8> {
    let fields = [("content-length", "4"), ("expect", "100-continue")];
    encode_frame(
        HEADERS,
        END_HEADERS,
        stream,
        &crate::harness::http2_frames::encode_request_fields("POST", "/v1/signup", key, &fields),
    )
}

#[test]
fn over_http2_a_client_that_never_sends_its_expected_body_gets_a_417_and_a_refund() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start_gateway_with_key(&upstream);
    let mut frames = FrameClient::open(gateway.http);
    let begun = Instant::now();
    assert!(frames.try_send(&post_frames_expecting_continue(1, &key)));
    assert_eq!(frames.read_status(1), 417);
    assert!(begun.elapsed() < UPSTREAM_DEADLINE, "{:?}", begun.elapsed());
    assert_eq!((upstream.request_count(), gateway.get_month_count(&key)), (0, 0));
    // A long body, whose start riskgate does not need, is awaited in the same way.
    let fields = [("content-length", "100000"), ("expect", "100-continue")];
    let block =
        crate::harness::http2_frames::encode_request_fields("POST", "/v1/signup", &key, &fields);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, 5, &block)));
    assert_eq!(frames.read_status(5), 417);
    assert_eq!((upstream.request_count(), gateway.get_month_count(&key)), (0, 0));
    // A client that does not wait long is served.
    assert!(frames.try_send(&post_frames_expecting_continue(7, &key)));
    std::thread::sleep(Duration::from_secs(1));
    assert!(frames.try_send(&encode_frame(DATA, END_STREAM, 7, b"body")));
    assert_eq!(frames.read_status(7), 200);
    assert_eq!(
        (upstream.last_request().body, gateway.get_month_count(&key)),
        (b"body".to_vec(), 1)
    );
}

#[test]
fn over_http2_a_refused_request_and_an_unknown_expectation_are_answered_at_once() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start_gateway_with_key(&upstream);
    let mut frames = FrameClient::open(gateway.http);
    let begun = Instant::now();
    assert!(frames.try_send(&post_frames_expecting_continue(1, "rg_nobody")));
    assert_eq!(frames.read_status(1), 401);
    let fields = [("content-length", "4"), ("expect", "miracles")];
    let block =
        crate::harness::http2_frames::encode_request_fields("POST", "/v1/signup", &key, &fields);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, 3, &block)));
    assert_eq!(frames.read_status(3), 417);
    assert!(begun.elapsed() < UPSTREAM_DEADLINE / 2, "{:?}", begun.elapsed());
}
