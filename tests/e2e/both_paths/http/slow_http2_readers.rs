//! A client of HTTP/2 that reads its responses slowly gets them whole: in a drain, and after
//! `listen.keepalive_timeout`. What clients don't read counts against a bounded memory.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::harness::http2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameClient, GOAWAY, HEADERS, PING, SETTINGS, WINDOW_UPDATE,
    encode_frame, encode_request_fields,
};
use crate::harness::{
    Gateway, MockUpstream, Setup, Step, TEST_TIMEOUT, response_bytes, wait_until,
};

const ROUTE: &str = "[[upstream.route]]\nprefix = \"/\"\nkey = false\n";
/// The h2 crate queues such a page whole.
const PAGE_BYTES: usize = 60_000;
/// As many pages exceed the 4 MiB that the kernel may queue.
const PAGES: usize = 90;
/// The first and the last bytes that a slow client reads slowly. They take three seconds each.
const SLOW_BYTES: usize = 120_000;

/// Starts an upstream server with a page of this length, and a gateway that forwards to the server.
/// riskgate has the memory for all pages.
fn start_with_page(length: usize, change: impl FnOnce(Setup) -> Setup) -> (MockUpstream, Gateway) {
    let page = response_bytes(200, "", &"x".repeat(length));
    let upstream = MockUpstream::with_script(move |_| vec![Step::Send(page.clone())]);
    let setup = Setup::new().append_toml(ROUTE).set("listen.h2c", "true");
    let setup = setup.set("listen.max_held_bytes", "1073741824");
    let gateway = change(setup.with_upstreams(&[upstream.address])).start();
    (upstream, gateway)
}

/// Connects with a small receive buffer, so that few bytes wait in the kernel, and with windows
/// that never close.
fn open_with_small_buffer(address: SocketAddr) -> FrameClient {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16_384).unwrap();
    socket.connect(&address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut frames = FrameClient::start(stream);
    // 4 is SETTINGS_INITIAL_WINDOW_SIZE.
    assert!(frames.try_send(&encode_frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])));
    let increment = (0x7fff_ffff_u32 - 65_535).to_be_bytes();
    assert!(frames.try_send(&encode_frame(WINDOW_UPDATE, 0, 0, &increment)));
    frames
}

fn request_frame(method: &str, path: &str, stream: u32) -> Vec<u8> {
    let block = encode_request_fields(method, path, "", &[]);
    encode_frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

/// Reads all responses; the first and the last bytes with about 40 KB/s. Returns the length of the
/// bodies, and how many are complete.
fn read_slowly(frames: &mut FrameClient, length: usize) -> (usize, usize) {
    let (mut received, mut complete) = (0, 0);
    while complete < PAGES {
        let Some((kind, flags, _, payload)) = frames.read_frame() else { break };
        if kind == DATA {
            received += payload.len();
            complete += usize::from(flags & END_STREAM != 0);
            if !(SLOW_BYTES..PAGES * length - SLOW_BYTES).contains(&received) {
                std::thread::sleep(Duration::from_millis(payload.len() as u64 / 40));
            }
        }
        // A client confirms what it has read, even if riskgate has closed the connection.
        let confirmation = match (kind, flags) {
            (PING, 0) => encode_frame(PING, 1, 0, &payload),
            _ => encode_frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()),
        };
        let _ = frames.try_send(&confirmation);
    }
    (received, complete)
}

fn exchanges(gateway: &Gateway) -> f64 {
    gateway.sum_of_samples("riskgate_upstream_exchanges_in_flight", &[])
}

fn held_bytes(gateway: &Gateway) -> f64 {
    gateway.sum_of_samples("riskgate_held_body_bytes", &[])
}

/// Requests the pages, and waits until the server has answered.
fn request_pages(gateway: &Gateway, upstream: &MockUpstream) -> FrameClient {
    let mut frames = open_with_small_buffer(gateway.http);
    let requests: Vec<u8> =
        (0..PAGES as u32).flat_map(|at| request_frame("GET", "/page", at * 2 + 1)).collect();
    assert!(frames.try_send(&requests));
    wait_until("the server has answered", || upstream.request_count() == PAGES);
    frames
}

/// Waits until riskgate has passed the whole responses to the h2 crate.
fn wait_until_queued(gateway: &Gateway) {
    wait_until("the server is free", || exchanges(gateway) == 0.0);
}

#[test]
fn a_slow_http2_reader_gets_its_whole_responses_in_a_drain() {
    // The h2 crate has no place for all of the long page.
    for length in [PAGE_BYTES, 100_000] {
        let (upstream, mut gateway) = start_with_page(length, |setup| setup);
        let mut frames = request_pages(&gateway, &upstream);
        if length == PAGE_BYTES {
            wait_until_queued(&gateway);
        }
        gateway.send_signal("TERM");
        assert_eq!(read_slowly(&mut frames, length), (PAGES * length, PAGES));
        drop(frames);
        assert_eq!(gateway.wait_for_exit().code(), Some(0));
        let log = gateway.stderr();
        assert!(!log.contains("drains: 0 requests left"), "{log}");
        assert!(log.contains("all requests had their responses"), "{log}");
    }
}

#[test]
fn a_slow_http2_reader_gets_its_whole_responses_after_keepalive_timeout() {
    let (upstream, gateway) =
        start_with_page(PAGE_BYTES, |setup| setup.set_text("listen.keepalive_timeout", "1s"));
    let mut frames = request_pages(&gateway, &upstream);
    wait_until_queued(&gateway);
    std::thread::sleep(Duration::from_secs(4));
    let in_flight = || gateway.sum_of_samples("riskgate_requests_in_flight", &[]);
    assert!(in_flight() > 0.0, "the client has not taken its responses");
    assert_eq!(read_slowly(&mut frames, PAGE_BYTES), (PAGES * PAGE_BYTES, PAGES));
    wait_until("the requests have ended", || in_flight() == 0.0);
}

#[test]
fn a_drain_cuts_http2_responses_that_no_client_reads_and_says_so() {
    let (upstream, mut gateway) =
        start_with_page(PAGE_BYTES, |setup| setup.set_text("drain.grace", "2s"));
    let _frames = request_pages(&gateway, &upstream);
    wait_until_queued(&gateway);
    gateway.send_signal("TERM");
    assert_eq!(gateway.wait_for_exit().code(), Some(0));
    let log = gateway.stderr();
    assert!(log.contains("requests were cut") || log.contains("request was cut"), "{log}");
}

#[test]
fn pages_that_http2_clients_do_not_read_use_a_bounded_memory() {
    // One client gets a sixteenth: 1 MiB.
    let (_upstream, gateway) = start_with_page(PAGE_BYTES, |setup| {
        let setup = setup.set("listen.max_held_bytes", "16777216");
        let setup = setup.set("upstream.max_in_flight", "100");
        let setup = setup.set("upstream.max_in_flight_per_address", "100");
        setup.set_text("listen.write_timeout", "20s")
    });
    let before = gateway.resident_memory_kib();
    let clients: Vec<FrameClient> = (0..30)
        .map(|_| {
            let mut frames = open_with_small_buffer(gateway.http);
            let requests: Vec<u8> =
                (0..50).flat_map(|at| request_frame("GET", "/page", at * 2 + 1)).collect();
            assert!(frames.try_send(&requests));
            frames
        })
        .collect();
    wait_until("a client's memory is used up", || held_bytes(&gateway) > 900_000.0);
    std::thread::sleep(Duration::from_secs(2));
    let (held, grown) = (held_bytes(&gateway), gateway.resident_memory_kib() - before);
    println!("{held} bytes held, {grown} KiB more");
    assert!(held <= 1_048_576.0, "{held}");
    assert!(grown < 30_000, "{grown} KiB");
    drop(clients);
    wait_until("their memory is free", || held_bytes(&gateway) == 0.0);
    wait_until("the servers are free", || exchanges(&gateway) == 0.0);
}

#[test]
fn riskgates_own_responses_that_http2_clients_do_not_read_use_a_bounded_memory() {
    // One client gets a sixteenth: 64 KiB.
    let setup = Setup::new().set("listen.h2c", "true").set("listen.max_held_bytes", "1048576");
    let gateway = setup.set_text("listen.write_timeout", "10m").start();
    let floods = || gateway.sum_of_samples("riskgate_http2_floods_total", &[]);
    for method in ["GET", "HEAD"] {
        let before = floods();
        let mut clients: Vec<FrameClient> =
            (0..8).map(|_| open_with_small_buffer(gateway.http)).collect();
        for stream in (0..2_000).map(|at| at * 2 + 1) {
            for frames in &mut clients {
                // riskgate may have closed the connection.
                let _ = frames.try_send(&request_frame(method, "/v1/usage", stream));
            }
            let held = held_bytes(&gateway);
            assert!(held <= 65_536.0, "{held}");
            if floods() > before {
                break;
            }
        }
        assert!(floods() > before, "{method}: riskgate has closed no connection");
        drop(clients);
        wait_until("their memory is free", || held_bytes(&gateway) == 0.0);
    }
    // A client that reads is served, however much memory others use.
    let mut frames = FrameClient::open(gateway.http);
    assert!(frames.try_send(&encode_frame(WINDOW_UPDATE, 0, 0, &1_000_000_u32.to_be_bytes())));
    for first in (0..100).map(|at| at * 20 + 1) {
        let requests: Vec<u8> =
            (0..10).flat_map(|at| request_frame("GET", "/v1/usage", first + at * 2)).collect();
        assert!(frames.try_send(&requests));
        let mut ended = 0;
        while ended < 10 {
            let (kind, flags, ..) = frames.read_frame().expect("a frame");
            assert_ne!(kind, GOAWAY);
            ended += usize::from(kind <= HEADERS && flags & END_STREAM != 0);
        }
    }
}

#[test]
fn headers_without_a_body_that_an_http2_client_does_not_read_count() {
    const HEADERS_ALONE: usize = 10;
    let (upstream, gateway) =
        start_with_page(PAGE_BYTES, |setup| setup.set_text("listen.write_timeout", "10m"));
    let mut frames = request_pages(&gateway, &upstream);
    wait_until_queued(&gateway);
    // The kernel takes some pages more. Each page that it takes counts for more than all headers.
    let mut held_before = 0.0;
    wait_until("the kernel takes no page", || {
        std::thread::sleep(Duration::from_secs(3));
        held_bytes(&gateway) == std::mem::replace(&mut held_before, held_bytes(&gateway))
    });
    let requests: Vec<u8> = (PAGES..PAGES + HEADERS_ALONE)
        .flat_map(|at| request_frame("HEAD", "/page", at as u32 * 2 + 1))
        .collect();
    assert!(frames.try_send(&requests));
    wait_until("the headers count", || {
        // While the kernel takes no bytes, riskgate counts so few headers when a frame arrives.
        assert!(frames.try_send(&encode_frame(PING, 0, 0, b"12345678")));
        let held = held_bytes(&gateway);
        // The kernel may take a page even now.
        held_before = held_before.min(held);
        held >= held_before + (HEADERS_ALONE * 2048) as f64
    });
    drop(frames);
    wait_until("their memory is free", || held_bytes(&gateway) == 0.0);
}
