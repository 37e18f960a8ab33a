//! Clients that leave before the answer of the server: their sign-ups count as well.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use super::{RULES, post, sign_up_route, start_counting};
use crate::harness::http2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, RST_STREAM, encode_frame,
    encode_request_fields,
};
use crate::harness::{
    Gateway, MockUpstream, Setup, Step, is_fast_path_the_default, response_bytes, wait_until,
};

const FORM: &str = "application/x-www-form-urlencoded";
/// As long as the server needs for an answer.
const ANSWER_TIME: Duration = Duration::from_millis(400);

fn start(upstream: &MockUpstream) -> Gateway {
    let setup = Setup::with_bundled_table().with_upstreams(&[upstream.address]);
    let toml = format!("{}{RULES}", sign_up_route("annotate", ""));
    let log = setup.path("access.log").display().to_string();
    start_counting(setup.set_text("log.path", &log).set("listen.h2c", "true").append_toml(&toml))
}

/// A server that takes its time to make an account.
fn start_slow_server() -> MockUpstream {
    MockUpstream::with_script(|_| {
        vec![Step::Pause(ANSWER_TIME), Step::Send(response_bytes(201, "", "made"))]
    })
}

fn wait_for_request(upstream: &MockUpstream, count: usize) {
    wait_until("the server has the form", || upstream.received_requests().len() == count);
}

/// Waits until riskgate has ended and logged all requests, and asserts that a sign-up of this inbox
/// counts.
#[track_caller]
fn assert_counts(gateway: &Gateway, upstream: &MockUpstream, inbox: &str) {
    wait_until("all requests have ended", || {
        gateway.access_log_length() > 0
            && gateway.read_access_log().len() == upstream.received_requests().len()
    });
    post(gateway, &format!("{inbox}+b@gmail.com")).expect(201);
    let action = upstream.last_request().header_values("X-Riskgate-Action").concat();
    assert_eq!(action, "review", "{inbox}");
}

#[test]
fn a_client_of_http1_that_leaves_before_the_answer_is_counted() {
    let upstream = start_slow_server();
    let gateway = start(&upstream);
    let body = "email=jane%2Ba%40gmail.com";
    let head = format!("POST /signup HTTP/1.1\r\nHost: a.test\r\nContent-Type: {FORM}\r\n");
    let mut client = TcpStream::connect(gateway.http).unwrap();
    write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    wait_for_request(&upstream, 1);
    drop(client);
    assert_counts(&gateway, &upstream, "jane");
}

/// Posts a form over HTTP/2, with a length or without. Leaves by a reset of the stream, or by the
/// end of the connection.
fn post_and_leave(gateway: &Gateway, upstream: &MockUpstream, body: &[u8], has_length: bool) {
    let count = upstream.received_requests().len();
    for resets in [true, false] {
        let mut client = FrameClient::open(gateway.http);
        let length = body.len().to_string();
        let mut fields = vec![("content-type", FORM)];
        fields.extend(has_length.then_some(("content-length", &*length)));
        let header = encode_request_fields("POST", "/signup", "", &fields);
        assert!(client.try_send(&encode_frame(HEADERS, END_HEADERS, 1, &header)));
        let parts: Vec<&[u8]> = body.chunks(16_000).collect();
        for (at, part) in parts.iter().enumerate() {
            let flags = if at + 1 == parts.len() { END_STREAM } else { 0 };
            assert!(client.try_send(&encode_frame(DATA, flags, 1, part)));
        }
        wait_for_request(upstream, count + 1 + usize::from(!resets));
        if resets {
            assert!(client.try_send(&encode_frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])));
            // The connection stays open.
            std::thread::sleep(ANSWER_TIME);
        }
    }
}

#[test]
fn a_client_of_http2_that_leaves_before_the_answer_is_counted() {
    // Pingora gives up the exchange when the client resets the stream: docs/decisions.md.
    if !is_fast_path_the_default() {
        return;
    }
    let upstream = start_slow_server();
    let gateway = start(&upstream);
    let padding = "x".repeat(60_000);
    for (inbox, more, has_length) in [
        ("short", "", true),
        ("unknown", "", false),
        ("long", padding.as_str(), true),
        ("longunknown", padding.as_str(), false),
    ] {
        let body = format!("more={more}&email={inbox}%2Ba%40gmail.com");
        post_and_leave(&gateway, &upstream, body.as_bytes(), has_length);
        assert_counts(&gateway, &upstream, inbox);
    }
}
