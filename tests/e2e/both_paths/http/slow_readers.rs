//! If clients read their responses slowly or not at all, riskgate disconnects them in time. They
//! delay no other client, and no truncated response looks complete.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::http2_frames::{
    END_HEADERS, END_STREAM, FrameClient, HEADERS, RST_STREAM, SETTINGS, decode_status,
    encode_frame,
};
use crate::harness::{
    CALLS_TO_OBTAIN_LEASE, Gateway, MockUpstream, Setup, Step, TEST_TIMEOUT, get, response_bytes,
    wait_until,
};

const DOMAIN: &str = "/v1/public/domain/first.test";
const LARGE_BODY_BYTES: usize = 8 << 20;

/// Starts an upstream server whose responses exceed every buffer, and a gateway. The deadline of an
/// exchange is one second; the write time-out is longer than any test takes.
fn start_with_large_responses() -> (MockUpstream, Gateway, String) {
    let upstream = MockUpstream::with_script(|_| {
        vec![Step::Send(response_bytes(200, "", &"x".repeat(LARGE_BODY_BYTES)))]
    });
    let setup = Setup::new().with_upstreams(&[upstream.address]).set("listen.h2c", "true");
    let setup = setup.set_text("upstream.deadline", "1s").set_text("listen.write_timeout", "10m");
    let setup = setup.set("upstream.max_in_flight", "30").set("plans.free", "1000000");
    let gateway = setup.set("upstream.max_in_flight_per_address", "30").start();
    let key = gateway.create_key_with_lease("acme");
    (upstream, gateway, key)
}

fn request_bytes(method: &str, target: &str, key: &str) -> Vec<u8> {
    let line = format!("{method} {target} HTTP/1.1\r\nHost: gate.test\r\n");
    format!("{line}Authorization: Bearer {key}\r\n\r\n").into_bytes()
}

fn connect_with_timeouts(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    stream
}

/// The bytes until the end of the connection, whatever ended it.
fn read_length_until_end(mut stream: TcpStream) -> usize {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes.len()
}

#[test]
fn a_slow_reader_is_disconnected_at_the_deadline_and_its_call_stays_counted() {
    let (_stand_in, gateway, key) = start_with_large_responses();
    let mut readers: Vec<TcpStream> =
        (0..30).map(|_| connect_with_timeouts(gateway.http)).collect();
    for reader in &mut readers {
        reader.write_all(&request_bytes("GET", "/v1/check/a@b.com", &key)).unwrap();
    }
    // Reading a few bytes now and then does not extend the deadline.
    let mut taken = 0;
    wait_until("they are gone", || {
        for reader in &mut readers {
            taken += reader.read(&mut [0; 10]).unwrap_or(0);
        }
        gateway.sum_of_samples("riskgate_connections", &[]) == 0.0
    });
    assert!(taken > 0);
    for reader in readers {
        let rest = read_length_until_end(reader);
        assert!(rest < 1 << 20, "the kernel held {rest} bytes");
    }
    wait_until("the exchanges have ended", || {
        gateway.sum_of_samples("riskgate_requests_in_flight", &[]) == 0.0
    });
    let response = get("/v1/check/a@b.com").key(&key).send(gateway.http).expect(200);
    assert!(response.is_complete, "the permits of the ended exchanges are free");
    assert_eq!(
        gateway.get_month_count(&key),
        CALLS_TO_OBTAIN_LEASE + 31,
        "a truncated response stays counted"
    );
}

#[test]
fn a_client_that_reads_nothing_is_closed_and_gets_no_refund() {
    let setup = Setup::new().set_text("listen.write_timeout", "1s").set("plans.free", "10000000");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    for method in ["HEAD", "GET"] {
        let mut client = connect_with_timeouts(gateway.http);
        let many = request_bytes(method, DOMAIN, &key).repeat(100);
        // Fills the buffers until no more bytes fit.
        while client.write_all(&many).is_ok() {}
        wait_until("it is gone", || gateway.sum_of_samples("riskgate_connections", &[]) == 0.0);
    }
    assert_eq!(gateway.sum_of_samples("riskgate_quota_refunds_total", &[]), 0.0);
    assert!(!gateway.stderr().contains("error: request"), "{}", gateway.stderr());
    gateway.get_domain("first.test", &key).expect(200);
}

/// Requests streams, and never enlarges their windows.
fn open_streams_without_window(gateway: &Gateway, block: &[u8], streams: u32) -> FrameClient {
    let mut frames = FrameClient::open(gateway.http);
    // 4 is SETTINGS_INITIAL_WINDOW_SIZE.
    assert!(frames.try_send(&encode_frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])));
    for stream in 0..streams {
        assert!(frames.try_send(&encode_frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            stream * 2 + 1,
            block
        )));
    }
    frames
}

/// Reads until this many streams were reset; no stream may end as if it were complete.
fn assert_all_streams_reset(frames: &mut FrameClient, streams: u32) {
    let mut reset = 0;
    while reset < streams {
        let (kind, flags, stream, block) = frames.read_frame().expect("a frame");
        let is_whole = kind <= HEADERS && flags & END_STREAM != 0;
        assert!(!is_whole, "stream {stream} looks complete");
        // On a busy machine the upstream server may answer after the deadline. Then riskgate sends
        // a 500, and its body waits for the window.
        let is_late = kind == HEADERS && decode_status(&block) == 500;
        reset += u32::from(kind == RST_STREAM || is_late);
    }
}

#[test]
fn a_stream_whose_window_stays_closed_is_reset_at_the_deadline() {
    let (_stand_in, gateway, key) = start_with_large_responses();
    let block =
        crate::harness::http2_frames::encode_request_fields("GET", "/v1/check/a@b.com", &key, &[]);
    let mut peaks = vec![];
    for _ in 0..8 {
        let begun = Instant::now();
        let mut frames = open_streams_without_window(&gateway, &block, 30);
        assert_all_streams_reset(&mut frames, 30);
        assert!(
            begun.elapsed() > Duration::from_millis(500),
            "the streams stayed open until the deadline"
        );
        // The connection itself still works.
        let head = crate::harness::http2_frames::encode_request_fields("HEAD", DOMAIN, &key, &[]);
        assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS | END_STREAM, 201, &head)));
        assert_eq!(frames.read_status(201), 200);
        peaks.push(gateway.peak_memory_kib());
    }
    println!("{peaks:?} KiB");
    assert!(peaks[7] < peaks[3] + 16 * 1024, "{peaks:?} KiB");
    wait_until("nothing is in flight", || {
        gateway.sum_of_samples("riskgate_requests_in_flight", &[]) == 0.0
    });
}

#[test]
fn riskgates_own_response_without_a_stream_window_is_reset_after_write_timeout() {
    let setup = Setup::new().set_text("listen.write_timeout", "500ms").set("listen.h2c", "true");
    let gateway = setup.set("plans.free", "1000").start();
    let key = gateway.create_active_key("acme", &[]);
    let block = crate::harness::http2_frames::encode_request_fields("GET", DOMAIN, &key, &[]);
    let mut frames = open_streams_without_window(&gateway, &block, 50);
    assert_all_streams_reset(&mut frames, 50);
    assert_eq!(gateway.get_month_count(&key), 50);
    assert_eq!(gateway.sum_of_samples("riskgate_quota_refunds_total", &[]), 0.0);
}

#[test]
fn a_stream_reset_by_its_client_gets_no_refund() {
    let gateway = Setup::new().set("listen.h2c", "true").set("plans.free", "1000").start();
    let key = gateway.create_active_key("acme", &[]);
    let block = crate::harness::http2_frames::encode_request_fields("GET", DOMAIN, &key, &[]);
    let mut frames = FrameClient::open(gateway.http);
    let mut bytes = vec![];
    for stream in 0..10 {
        bytes.extend(encode_frame(HEADERS, END_HEADERS | END_STREAM, stream * 2 + 1, &block));
        // 8 is CANCEL.
        bytes.extend(encode_frame(RST_STREAM, 0, stream * 2 + 1, &[0, 0, 0, 8]));
    }
    bytes.extend(encode_frame(HEADERS, END_HEADERS | END_STREAM, 21, &block));
    assert!(frames.try_send(&bytes));
    assert_eq!(frames.read_status(21), 200);
    wait_until("nothing is in flight", || {
        gateway.sum_of_samples("riskgate_requests_in_flight", &[]) == 0.0
    });
    assert_eq!(gateway.sum_of_samples("riskgate_quota_refunds_total", &[]), 0.0);
    assert!(!gateway.stderr().contains("error: request"), "{}", gateway.stderr());
}

#[test]
fn responses_that_their_clients_do_not_read_leave_the_servers_to_others() {
    let upstream = MockUpstream::with_script(|_| vec![Step::Send(response_bytes(200, "", "ok"))]);
    let route = "[[upstream.route]]\nprefix = \"/\"\nkey = false\nmethods = [\"GET\"]\n";
    let setup = Setup::new().with_upstreams(&[upstream.address]).set("listen.h2c", "true");
    let setup = setup.append_toml(route).set("upstream.max_in_flight", "10");
    let gateway = setup.set("upstream.max_in_flight_per_address", "10").start();
    let block = crate::harness::http2_frames::encode_request_fields("GET", "/page", "", &[]);
    let mut unread = vec![];
    for round in 1..=6 {
        unread.push(open_streams_without_window(&gateway, &block, 5));
        wait_until("the server has answered all", || upstream.request_count() == round * 5);
        wait_until("no exchange is left", || {
            gateway.sum_of_samples("riskgate_upstream_exchanges_in_flight", &[]) == 0.0
        });
    }
    let waiting = gateway.sum_of_samples("riskgate_held_body_bytes", &[]);
    assert!(waiting >= 30.0 * 2.0, "their memory is counted: {waiting}");
    assert_eq!(gateway.send_request(&get("/page")).expect(200).text(), "ok");
    drop(unread);
    wait_until("their memory is free", || {
        gateway.sum_of_samples("riskgate_held_body_bytes", &[]) == 0.0
    });
}
