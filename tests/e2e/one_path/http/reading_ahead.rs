//! On the fast path, riskgate reads a response on while its client takes nothing. So the server is
//! free for others.

use std::io::{Read, Write};
use std::time::Duration;

use crate::harness::http2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, SETTINGS, WINDOW_UPDATE, encode_frame,
    encode_request_fields,
};
use crate::harness::{Gateway, MockUpstream, Setup, Step, response_bytes, wait_until};

const ROUTE: &str = "[[upstream.route]]\nprefix = \"/\"\nkey = false\n";

fn page(length: usize) -> String {
    (0..length).map(|at| char::from(b'a' + (at % 23) as u8)).collect()
}

fn chunked(body: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = body.as_bytes().chunks(1_000);
    let chunks: String = chunks
        .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)))
        .collect();
    format!("{head}{chunks}0\r\n\r\n").into_bytes()
}

fn exchanges(gateway: &Gateway) -> f64 {
    gateway.sum_of_samples("riskgate_upstream_exchanges_in_flight", &[])
}

/// Requests the page, reads nothing for a second, and then everything until the connection ends.
fn read_after_a_pause(gateway: &Gateway) -> Vec<u8> {
    let mut client = std::net::TcpStream::connect(gateway.http).unwrap();
    client.write_all(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    received
}

#[test]
fn pages_that_nobody_takes_yet_leave_the_server_to_others_and_arrive_whole() {
    let body = page(150_000);
    for framing in [response_bytes(200, "", &body), chunked(&body)] {
        let upstream = MockUpstream::with_script(move |_| vec![Step::Send(framing.clone())]);
        let setup = Setup::new().append_toml(ROUTE).set("listen.h2c", "true");
        let gateway = setup.with_upstreams(&[upstream.address]).start();
        let mut frames = FrameClient::open(gateway.http);
        // 4 is SETTINGS_INITIAL_WINDOW_SIZE.
        assert!(frames.try_send(&encode_frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])));
        let block = encode_request_fields("GET", "/page", "", &[]);
        for stream in [1, 3, 5] {
            let flags = END_HEADERS | END_STREAM;
            assert!(frames.try_send(&encode_frame(HEADERS, flags, stream, &block)));
        }
        wait_until("the server has answered all", || upstream.request_count() == 3);
        wait_until("the server is free", || exchanges(&gateway) == 0.0);
        let waiting = gateway.sum_of_samples("riskgate_held_body_bytes", &[]);
        assert!(waiting >= 3.0 * 150_000.0, "their memory is counted: {waiting}");
        for stream in [0, 1, 3, 5] {
            let increment = 10_000_000_u32.to_be_bytes();
            assert!(frames.try_send(&encode_frame(WINDOW_UPDATE, 0, stream, &increment)));
        }
        let (mut received, mut ended) = ([vec![], vec![], vec![]], 0);
        while ended < 3 {
            let (kind, flags, stream, payload) = frames.read_frame().expect("a frame");
            if kind == DATA {
                received[(stream / 2) as usize].extend(payload);
                ended += usize::from(flags & END_STREAM != 0);
            }
        }
        assert!(received.iter().all(|all| *all == body.as_bytes()));
    }
}

#[test]
fn memory_for_a_response_is_free_once_its_client_has_taken_what_waited() {
    let events = format!("{:x}\r\n{}\r\n", 12 << 20, page(12 << 20));
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let begun = [head, &*events].concat().into_bytes();
    let upstream =
        MockUpstream::with_script(move |_| vec![Step::Send(begun.clone()), Step::StaySilent]);
    let gateway = Setup::new().append_toml(ROUTE).with_upstreams(&[upstream.address]).start();
    let held = || gateway.sum_of_samples("riskgate_held_body_bytes", &[]);
    let mut client = std::net::TcpStream::connect(gateway.http).unwrap();
    client.write_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    wait_until("bytes wait for the client", || held() > 200_000.0);
    let mut received = vec![0; 12 << 20];
    client.read_exact(&mut received).unwrap();
    wait_until("no byte waits", || held() == 0.0);
    assert_eq!(exchanges(&gateway), 1.0, "the stream is still open");
}

#[test]
fn a_truncated_response_that_was_read_ahead_never_looks_complete() {
    let whole = response_bytes(200, "", &page(12 << 20));
    let cut = whole[..whole.len() - 1_000].to_vec();
    let upstream = MockUpstream::with_script(move |_| vec![Step::Send(cut.clone()), Step::Close]);
    let setup = Setup::new().append_toml(ROUTE).with_upstreams(&[upstream.address]);
    let gateway = setup.start();
    let received = read_after_a_pause(&gateway);
    let body_start = received.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(received.len() - body_start, (12 << 20) - 1_000, "all that arrived, and no more");
    wait_until("the place is free", || exchanges(&gateway) == 0.0);
}

#[test]
fn a_malformed_response_that_was_read_ahead_never_looks_complete() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, page(1 << 16));
    // A parser that lost its place would take the last bytes for a chunk and an end.
    let bytes = format!("{head}{}5\r\nhello\r\nZZ\r\nX\r\n0\r\n\r\n", chunk.repeat(200));
    let upstream = MockUpstream::with_script(move |_| vec![Step::Send(bytes.clone().into_bytes())]);
    let setup = Setup::new().append_toml(ROUTE).with_upstreams(&[upstream.address]);
    let gateway = setup.start();
    let received = read_after_a_pause(&gateway);
    assert!(!received.ends_with(b"0\r\n\r\n"), "the response ended in good order");
}

#[test]
fn a_client_that_reads_steadily_but_slowly_gets_the_whole_page() {
    let body = page(400_000);
    let framing = response_bytes(200, "", &body);
    let upstream = MockUpstream::with_script(move |_| vec![Step::Send(framing.clone())]);
    let setup = Setup::new().append_toml(ROUTE).set("listen.h2c", "true");
    let setup = setup.set_text("listen.write_timeout", "2s");
    let gateway = setup.with_upstreams(&[upstream.address]).start();
    let mut frames = FrameClient::open(gateway.http);
    // 4 is SETTINGS_INITIAL_WINDOW_SIZE.
    assert!(frames.try_send(&encode_frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])));
    let block = encode_request_fields("GET", "/page", "", &[]);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)));
    let (mut received, mut has_ended) = (0, false);
    while !has_ended {
        // 20,000 bytes each 200 ms are 100 KB/s: a part in time, and the page after 4 s.
        std::thread::sleep(Duration::from_millis(200));
        for stream in [0, 1] {
            let increment = 20_000_u32.to_be_bytes();
            assert!(frames.try_send(&encode_frame(WINDOW_UPDATE, 0, stream, &increment)));
        }
        let before = received;
        while !has_ended && received < before + 20_000 {
            let (kind, flags, stream, payload) = frames.read_frame().expect("a frame");
            if stream == 1 && kind != HEADERS {
                assert_eq!(kind, DATA, "the stream was cut after {received} bytes");
                received += payload.len();
                has_ended = flags & END_STREAM != 0;
            }
        }
    }
    assert_eq!(received, 400_000);
}
