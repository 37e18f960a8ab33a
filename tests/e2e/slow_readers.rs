//! Clients that take their answers slowly or not at all: they are gone in time, hold nothing from
//! others, and what was cut never looks complete.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::harness::{Gateway, PATIENCE, Setup, until_true};
use crate::http2::{END_HEADERS, END_STREAM, Frames, HEADERS, RST_STREAM, SETTINGS, frame};

const DOMAIN: &str = "/v1/public/domain/first.test";

fn request(method: &str, target: &str, key: &str) -> Vec<u8> {
    let line = format!("{method} {target} HTTP/1.1\r\nHost: gate.test\r\n");
    format!("{line}Authorization: Bearer {key}\r\n\r\n").into_bytes()
}

fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    stream
}

#[test]
fn who_takes_no_answer_is_dropped_and_gets_no_call_back() {
    let setup = Setup::new().text("listen.write_timeout", "1s").set("plans.free", "10000000");
    let gateway = setup.start();
    let key = gateway.key("acme", &[]);
    for method in ["HEAD", "GET"] {
        let mut client = open(gateway.http);
        let many = request(method, DOMAIN, &key).repeat(100);
        // Until nothing more goes in.
        while client.write_all(&many).is_ok() {}
        until_true("it is gone", || gateway.metric("riskgate_connections", &[]) == 0.0);
    }
    assert_eq!(gateway.metric("riskgate_calls_given_back_total", &[]), 0.0);
    assert!(!gateway.stderr().contains("error: request"), "{}", gateway.stderr());
    gateway.domain("first.test", &key).expect(200);
}

/// Streams that are asked for, and whose window is never opened.
fn closed_windows(gateway: &Gateway, block: &[u8], streams: u32) -> Frames {
    let mut frames = Frames::open(gateway.http);
    // 4 is the window that a stream begins with.
    assert!(frames.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])));
    for stream in 0..streams {
        assert!(frames.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream * 2 + 1, block)));
    }
    frames
}

/// Reads until so many streams were reset; none may end as if it were whole.
fn all_reset(frames: &mut Frames, streams: u32) {
    let mut reset = 0;
    while reset < streams {
        let (kind, flags, stream, _) = frames.next().expect("a frame");
        let is_whole = kind <= HEADERS && flags & END_STREAM != 0;
        assert!(!is_whole, "stream {stream} looks complete");
        reset += u32::from(kind == RST_STREAM);
    }
}

#[test]
fn an_answer_of_ours_for_which_no_window_opens_is_reset_in_time() {
    let setup = Setup::new().text("listen.write_timeout", "500ms").set("listen.h2c", "true");
    let gateway = setup.set("plans.free", "1000").start();
    let key = gateway.key("acme", &[]);
    let block = crate::http2::request("GET", DOMAIN, &key, &[]);
    let mut frames = closed_windows(&gateway, &block, 50);
    all_reset(&mut frames, 50);
    assert_eq!(gateway.month_count(&key), 50);
    assert_eq!(gateway.metric("riskgate_calls_given_back_total", &[]), 0.0);
}

#[test]
fn a_stream_that_its_client_reset_gets_no_call_back() {
    let gateway = Setup::new().set("listen.h2c", "true").set("plans.free", "1000").start();
    let key = gateway.key("acme", &[]);
    let block = crate::http2::request("GET", DOMAIN, &key, &[]);
    let mut frames = Frames::open(gateway.http);
    let mut bytes = vec![];
    for stream in 0..10 {
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream * 2 + 1, &block));
        // 8 is CANCEL.
        bytes.extend(frame(RST_STREAM, 0, stream * 2 + 1, &[0, 0, 0, 8]));
    }
    bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 21, &block));
    assert!(frames.send(&bytes));
    assert_eq!(frames.status(21), 200);
    until_true("nothing is in flight", || {
        gateway.metric("riskgate_requests_in_flight", &[]) == 0.0
    });
    assert_eq!(gateway.metric("riskgate_calls_given_back_total", &[]), 0.0);
    assert!(!gateway.stderr().contains("error: request"), "{}", gateway.stderr());
}
