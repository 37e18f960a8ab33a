//! HTTP/2 frames that are no requests: a client that floods riskgate with them is disconnected,
//! whatever else is open, and a client in good faith is not.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::http2_frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameClient, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, encode_frame, encode_request_fields,
};
use crate::harness::{
    CertificateAuthority, Gateway, MockUpstream, Setup, Step, response_bytes, run_command,
    wait_until,
};

const DOMAIN: &str = "/v1/public/domain/first.test";
const CHECK: &str = "/v1/check/a@b.com";
/// ENHANCE_YOUR_CALM (RFC 9113 section 7).
const ENHANCE_YOUR_CALM: u32 = 11;
const PING_ACK: u8 = 1;
/// A type of frames that RFC 9113 does not define: PRIORITY_UPDATE (RFC 9218).
const PRIORITY_UPDATE: u8 = 0x10;
/// The most frames of one flood.
const FLOOD_FRAMES: usize = 300_000;
const ROUTE: &str = "[[upstream.route]]\nprefix = \"/form\"\nmethods = [\"POST\"]\nkey = false\n";

fn start(upstream: &MockUpstream) -> (Gateway, String) {
    let setup = Setup::new().with_upstreams(&[upstream.address]).append_toml(ROUTE);
    let setup = setup.set("listen.h2c", "true").set_text("upstream.deadline", "60s");
    let gateway = setup.set("plans.free", "1000000").start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

fn headers(stream: u32, method: &str, path: &str, key: &str) -> Vec<u8> {
    let block = encode_request_fields(method, path, key, &[]);
    encode_frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

/// Reads frames to the end of the connection. Returns the number of answers to PING and SETTINGS,
/// and the error code of GOAWAY.
fn read_to_goaway(stream: TcpStream) -> (usize, Option<u32>) {
    let mut frames = FrameClient { stream };
    let mut answers = 0;
    while let Some((kind, flags, _, payload)) = frames.read_frame() {
        match kind {
            PING | SETTINGS if flags == PING_ACK => answers += 1,
            GOAWAY => {
                return (answers, Some(u32::from_be_bytes(payload[4..8].try_into().unwrap())));
            }
            _ => {}
        }
    }
    (answers, None)
}

#[test]
fn a_flood_of_frames_ends_the_connection_while_a_request_is_active() {
    let silent = MockUpstream::with_script(|_| vec![Step::StaySilent]);
    let (gateway, key) = start(&silent);
    let floods = || gateway.sum_of_samples("riskgate_http2_floods_total", &[]);
    let window_update = |stream| encode_frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]);
    let cases = [
        ("ping", encode_frame(PING, 0, 0, b"12345678")),
        ("answers to ping", encode_frame(PING, PING_ACK, 0, b"12345678")),
        ("settings", encode_frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("empty settings", encode_frame(SETTINGS, 0, 0, &[])),
        ("window update of the connection", window_update(0)),
        ("window update of the active request", window_update(1)),
        ("window update of an ended request", window_update(3)),
        ("priority", encode_frame(PRIORITY, 0, 5, &[0, 0, 0, 0, 1])),
        ("reset of an ended request", encode_frame(RST_STREAM, 0, 3, &[0, 0, 0, 8])),
        ("an unknown type", encode_frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1")),
        ("empty data", encode_frame(DATA, 0, 9, b"")),
        ("short data", encode_frame(DATA, 0, 9, b"a")),
        ("padding", encode_frame(DATA, 8, 9, &[&[200][..], &[0; 200]].concat())),
    ];
    for (ended, (name, frame)) in cases.iter().enumerate() {
        let requests = silent.request_count();
        let mut client = FrameClient::open(gateway.http);
        assert!(client.try_send(&headers(3, "GET", DOMAIN, &key)));
        assert_eq!(client.read_status(3), 200);
        if *name == "window update of the active request" {
            // The stream of the active request has a lower number than the ended one, so it comes
            // first.
            client = FrameClient::open(gateway.http);
            assert!(client.try_send(&headers(1, "GET", CHECK, &key)));
        } else {
            assert!(client.try_send(&headers(7, "GET", CHECK, &key)));
        }
        wait_until("a request is active", || silent.request_count() == requests + 1);
        if frame[3] == DATA {
            let fields = [("content-length", "1000000")];
            let block = encode_request_fields("POST", "/form", &key, &fields);
            assert!(client.try_send(&encode_frame(HEADERS, END_HEADERS, 9, &block)));
        }
        let stream = client.stream.try_clone().unwrap();
        let reader = std::thread::spawn(|| read_to_goaway(stream));
        let flood = frame.repeat(100);
        for _ in (0..FLOOD_FRAMES).step_by(100) {
            if reader.is_finished() || !client.try_send(&flood) {
                break;
            }
        }
        let (answers, error_code) = reader.join().unwrap();
        assert_eq!(error_code, Some(ENHANCE_YOUR_CALM), "{name}");
        assert!(answers < FLOOD_FRAMES / 10, "{name}: {answers} answers");
        wait_until("it is counted", || floods() == (ended + 1) as f64);
        // The connection ends, although its request is active.
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
    }
    gateway.get_domain("first.test", &key).expect(200);
}

/// A proxy may send the requests of many clients on one connection.
#[test]
fn targets_that_are_no_uri_end_no_other_request_on_the_connection() {
    let answer = vec![Step::Pause(Duration::from_secs(1)), Step::Send(response_bytes(200, "", ""))];
    let (gateway, key) = start(&MockUpstream::with_script(move |_| answer.clone()));
    let mut client = FrameClient::open(gateway.http);
    assert!(client.try_send(&headers(1, "GET", CHECK, &key)));
    for stream in (1..=200).map(|at| at * 2 + 1) {
        assert!(client.try_send(&headers(stream, "GET", "/a<b", &key)));
    }
    assert_eq!(client.read_status(1), 200);
}

#[test]
fn data_beyond_what_requests_announce_ends_the_connection() {
    let silent = MockUpstream::with_script(|_| vec![Step::StaySilent]);
    let (gateway, key) = start(&silent);
    let mut client = FrameClient::open(gateway.http);
    assert!(client.try_send(&headers(1, "GET", CHECK, &key)));
    wait_until("a request is active", || silent.request_count() == 1);
    // riskgate refuses this request, and ignores late frames of its body.
    let block = encode_request_fields("GET", DOMAIN, &key, &[("content-length", "3")]);
    assert!(client.try_send(&encode_frame(HEADERS, END_HEADERS, 3, &block)));
    assert_eq!(client.read_status(3), 400);
    // This client obeys the window of the connection, which riskgate has widened to 1 MiB, so the
    // h2 crate finds no error.
    let data = encode_frame(DATA, 0, 3, &[0; 16_000]);
    let (mut window, mut sent) = (1 << 20, 0);
    let error_code = loop {
        while window >= 16_000 && sent < 100_000_000 {
            if !client.try_send(&data) {
                break;
            }
            (window, sent) = (window - 16_000, sent + 16_000);
        }
        match client.read_frame() {
            Some((WINDOW_UPDATE, _, 0, payload)) => {
                window += u32::from_be_bytes(payload[..4].try_into().unwrap());
            }
            Some((GOAWAY, _, _, payload)) => {
                break Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
            Some(_) => {}
            None => break None,
        }
    };
    assert_eq!(error_code, Some(ENHANCE_YOUR_CALM), "after {sent} bytes");
    assert!(sent < 4_000_000, "{sent}");
}

#[test]
fn a_client_that_confirms_each_part_of_a_long_response_is_served() {
    const BODY_BYTES: usize = 4 << 20;
    let long = MockUpstream::with_script(|_| {
        vec![Step::Send(response_bytes(200, "", &"x".repeat(BODY_BYTES)))]
    });
    let (gateway, key) = start(&long);
    let mut client = FrameClient::open(gateway.http);
    client.stream.set_nodelay(true).unwrap();
    // A window of 1 KiB, so each DATA frame is short, and gets two WINDOW_UPDATEs and a PING.
    let window = [&[0, 4][..], &1024u32.to_be_bytes()].concat();
    assert!(client.try_send(&encode_frame(SETTINGS, 0, 0, &window)));
    assert!(client.try_send(&headers(1, "GET", CHECK, &key)));
    let (mut received, mut pings) = (0, 0);
    while received < BODY_BYTES {
        let (kind, flags, stream, payload) = client.read_frame().expect("no end");
        assert_ne!(kind, GOAWAY, "after {received} bytes");
        if kind == DATA && stream == 1 {
            received += payload.len();
            let increment = (payload.len() as u32).to_be_bytes();
            let mut bytes = encode_frame(PING, 0, 0, b"estimate");
            pings += 1;
            if !payload.is_empty() {
                bytes.extend(encode_frame(WINDOW_UPDATE, 0, 0, &increment));
                if flags & END_STREAM == 0 {
                    bytes.extend(encode_frame(WINDOW_UPDATE, 0, 1, &increment));
                }
            }
            assert!(client.try_send(&bytes));
        }
    }
    assert!(pings >= 4_096, "{pings}");
    assert_eq!(gateway.sum_of_samples("riskgate_http2_floods_total", &[]), 0.0);
}

#[test]
fn a_client_that_keeps_an_active_request_alive_or_resets_many_is_served() {
    let silent = MockUpstream::with_script(|_| vec![Step::StaySilent]);
    let (gateway, key) = start(&silent);
    let mut client = FrameClient::open(gateway.http);
    client.stream.set_nodelay(true).unwrap();
    // The frames with which Firefox and nghttp begin.
    for stream in [3, 5, 7, 9, 11] {
        assert!(client.try_send(&encode_frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 100])));
    }
    assert!(client.try_send(&encode_frame(WINDOW_UPDATE, 0, 0, &[0, 0xef, 0, 0])));
    assert!(client.try_send(&headers(13, "GET", CHECK, &key)));
    wait_until("a request is active", || silent.request_count() == 1);
    for _ in 0..500 {
        assert!(client.try_send(&encode_frame(PING, 0, 0, b"keepaliv")));
    }
    // A client that types ahead cancels each request, with the frames around it.
    for stream in (15..1_015).step_by(2) {
        assert!(client.try_send(&headers(stream, "GET", DOMAIN, &key)));
        assert!(client.try_send(&encode_frame(WINDOW_UPDATE, 0, stream, &[0, 1, 0, 0])));
        assert!(client.try_send(&encode_frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 1])));
        assert_eq!(client.read_status(stream), 200);
        assert!(client.try_send(&encode_frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])));
        assert!(client.try_send(&encode_frame(PING, 0, 0, b"estimate")));
    }
    assert_eq!(gateway.sum_of_samples("riskgate_http2_floods_total", &[]), 0.0);
}

/// One byte for each field: `age` without a value, by its number in the static table (RFC 7541).
fn fields_of_one_byte(count: usize) -> Vec<u8> {
    const AGE: u8 = 0x80 | 21;
    vec![AGE; count]
}

/// Opens a connection that has sent a header without its end.
fn open_with_endless_header(gateway: &Gateway, key: &str) -> FrameClient {
    let mut client = FrameClient::open(gateway.http);
    let mut block = encode_request_fields("GET", DOMAIN, key, &[]);
    block.extend(fields_of_one_byte(2_000));
    client.try_send(&encode_frame(HEADERS, END_STREAM, 1, &block));
    client
}

#[test]
fn headers_that_never_end_count_in_the_memory_of_their_client() {
    let setup = Setup::new().with_upstreams(&[MockUpstream::start().address]);
    let setup = setup.set("listen.h2c", "true").set("listen.max_held_bytes", "16777216");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    // The share of one client is 1 MiB, and each of these headers may take 256 KB.
    let _held: Vec<_> = (0..3).map(|_| open_with_endless_header(&gateway, &key)).collect();
    let more: Vec<_> = (0..20).map(|_| open_with_endless_header(&gateway, &key)).collect();
    let codes: Vec<_> = more.into_iter().map(|it| read_to_goaway(it.stream).1).collect();
    let closed = codes.iter().filter(|code| **code == Some(ENHANCE_YOUR_CALM)).count();
    assert_eq!(closed, 20, "{codes:?}");
    let held = gateway.sum_of_samples("riskgate_held_body_bytes", &[]);
    assert!((1.0..=1_048_576.0).contains(&held), "{held}");
    // A header that ends holds nothing on.
    let mut client = FrameClient::open(gateway.http);
    let block = encode_request_fields("GET", DOMAIN, &key, &[]);
    assert!(client.try_send(&encode_frame(HEADERS, END_STREAM, 1, &block[..9])));
    assert!(client.try_send(&encode_frame(CONTINUATION, END_HEADERS, 1, &block[9..])));
    assert_eq!(client.read_status(1), 200);
}

#[test]
fn each_header_must_end_within_the_header_timeout() {
    let setup = Setup::new().with_upstreams(&[MockUpstream::start().address]);
    let setup = setup.set("listen.h2c", "true").set_text("listen.header_timeout", "1s");
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let mut client = FrameClient::open(gateway.http);
    assert!(client.try_send(&headers(1, "GET", DOMAIN, &key)));
    assert_eq!(client.read_status(1), 200);
    let block = encode_request_fields("GET", DOMAIN, &key, &[]);
    let begun_at = Instant::now();
    assert!(client.try_send(&encode_frame(HEADERS, END_STREAM, 3, &block[..9])));
    assert_eq!(read_to_goaway(client.stream).1, Some(0));
    let waited = begun_at.elapsed().as_secs_f64();
    assert!((0.9..5.0).contains(&waited), "{waited}");
}

#[test]
fn a_header_in_many_continuation_frames_is_a_flood_that_h2_finds() {
    let (gateway, key) = start(&MockUpstream::start());
    let mut client = FrameClient::open(gateway.http);
    let block = encode_request_fields("GET", DOMAIN, &key, &[]);
    assert!(client.try_send(&encode_frame(HEADERS, END_STREAM, 1, &block)));
    let stream = client.stream.try_clone().unwrap();
    let reader = std::thread::spawn(|| read_to_goaway(stream));
    for _ in 0..10_000 {
        if reader.is_finished() || !client.try_send(&encode_frame(CONTINUATION, 0, 1, b"")) {
            break;
        }
    }
    assert_eq!(reader.join().unwrap().1, Some(ENHANCE_YOUR_CALM));
    wait_until("it is counted", || {
        gateway.sum_of_samples("riskgate_http2_floods_total", &[]) == 1.0
    });
}

#[test]
fn uploads_of_curl_over_one_connection_are_served() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().with_upstreams(&[upstream.address]).append_toml(ROUTE);
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificate = authority.issue_certificate("first", "DNS:gate.test");
    let gateway = setup.with_certificates(&[certificate]).start();
    let body = gateway.path("body");
    std::fs::write(&body, vec![b'x'; 1_000_000]).unwrap();
    let port = gateway.https_address().port();
    let mut curl = Command::new("curl");
    curl.args(["-s", "--http2", "--max-time", "60", "-w", "%{http_code} %{num_connects},"]);
    curl.args(["--resolve", &format!("gate.test:{port}:127.0.0.1"), "--cacert"]);
    curl.arg(authority.certificate_path()).args(["-H", "Content-Type: text/plain"]);
    curl.args(["-o", "/dev/null", "--data-binary", &format!("@{}", body.display())]);
    let ran = run_command(curl.arg(format!("https://gate.test:{port}/form/[1-30]"))).expect(0);
    assert_eq!(ran.stdout, ["200 1,".to_owned(), "200 0,".repeat(29)].concat());
    assert_eq!(gateway.sum_of_samples("riskgate_http2_floods_total", &[]), 0.0);
}
