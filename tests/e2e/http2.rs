//! HTTP/2: the same responses as over HTTP/1.1, the limits, and floods of frames.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::{
    CertificateAuthority, Gateway, MockUpstream, Setup, TEST_TIMEOUT, get, response_bytes,
    run_command, wait_until,
};

const DOMAIN: &str = "/v1/public/domain/first.test";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A field in HPACK's simplest form: a literal that is never indexed, without Huffman coding.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x10];
    for text in [name, value] {
        // Lengths of 127 and more continue in further bytes (RFC 7541 section 5.1).
        let mut rest = text.len();
        if rest < 127 {
            bytes.push(rest as u8);
        } else {
            bytes.push(127);
            rest -= 127;
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn fields(all: &[(&str, &str)]) -> Vec<u8> {
    all.iter().flat_map(|(name, value)| field(name, value)).collect()
}

pub fn request(method: &str, path: &str, key: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let key = format!("Bearer {key}");
    let mut all = fields(&[
        (":method", method),
        (":scheme", "http"),
        (":authority", "gate.test"),
        (":path", path),
        ("authorization", &key),
    ]);
    all.extend(fields(more));
    all
}

/// A client that sends raw frames, over a connection without TLS.
pub struct Frames {
    stream: TcpStream,
}

impl Frames {
    pub fn open(address: SocketAddr) -> Frames {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.write_all(PREFACE).unwrap();
        // Without a dynamic table, each response's fields can be decoded alone.
        stream.write_all(&frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0])).unwrap();
        Frames { stream }
    }

    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// The next frame: type, flags, stream, payload; None at the end of the connection.
    pub fn next_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).ok()?;
        Some((head[3], head[4], stream, payload))
    }

    /// The status of the response on a stream, from an indexed or literal `:status`; 0 for a reset.
    pub fn status(&mut self, wanted: u32) -> u16 {
        while let Some((kind, _, stream, payload)) = self.next_frame() {
            match kind {
                HEADERS if stream == wanted => return status_of(&payload),
                RST_STREAM if stream == wanted => return 0,
                _ => {}
            }
        }
        panic!("the connection ended before an answer on stream {wanted}");
    }

    /// The error code with which the peer closed the connection, if it sent one.
    fn goaway_error_code(&mut self) -> Option<u32> {
        while let Some((kind, _, _, payload)) = self.next_frame() {
            if kind == GOAWAY {
                return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
        None
    }
}

/// Decodes `:status` from the static table (RFC 7541 appendix A), or from a literal.
pub fn status_of(block: &[u8]) -> u16 {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    let block = match block[0] {
        size if size & 0xe0 == 0x20 => &block[1..],
        _ => block,
    };
    match block[0] {
        index @ 0x88..=0x8e => INDEXED[usize::from(index - 0x88)],
        _ => {
            let huffman = block[1] & 0x80 != 0;
            let length = usize::from(block[1] & 0x7f);
            let text = &block[2..2 + length];
            if huffman {
                huffman_digits(text)
            } else {
                std::str::from_utf8(text).unwrap().parse().unwrap()
            }
        }
    }
}

/// Decodes three digits in Huffman code (RFC 7541 appendix B): 0 to 2 have five bits, the others
/// six.
fn huffman_digits(code: &[u8]) -> u16 {
    let bits =
        code.iter().chain([0; 4].iter()).take(4).fold(0, |bits, byte| bits << 8 | u32::from(*byte));
    let (mut at, mut value) = (0, 0);
    for _ in 0..3 {
        let five = bits << at >> 27;
        if five < 3 {
            value = value * 10 + five;
            at += 5;
        } else {
            value = value * 10 + (bits << at >> 26) - 0x19 + 3;
            at += 6;
        }
    }
    value as u16
}

fn start_h2c_gateway() -> (Gateway, String) {
    let gateway = Setup::new().set("listen.h2c", "true").set("plans.free", "1000000").start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

#[test]
fn by_alpn_it_answers_as_over_http_1_and_passes_on() {
    let upstream = MockUpstream::with_script(|_| {
        vec![crate::harness::Step::Send(response_bytes(200, "", "whole"))]
    });
    let setup = Setup::new().upstream(&[upstream.address]);
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificate = authority.issue_certificate("first", "DNS:gate.test");
    let gateway = setup.with_certificates(&[certificate]).start();
    let key = gateway.create_active_key("acme", &[]);
    let at = gateway.with_certificates();
    let curl = |more: &[&str], path: &str| {
        let mut command = std::process::Command::new("curl");
        command
            .args(["-s", "-i", "--max-time", "20", "--cacert"])
            .arg(authority.certificate_path());
        command.args(["--resolve", &format!("gate.test:{}:127.0.0.1", at.port())]);
        command.args(["-H", &format!("Authorization: Bearer {key}")]).args(more);
        let ran = run_command(command.arg(format!("https://gate.test:{}{path}", at.port())));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout
    };
    let told = |text: &str| {
        let kept = text.lines().filter(|line| !line.starts_with("HTTP/"));
        let kept = kept.filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
        let changing = ["date:", "x-request-id:", "ratelimit:"];
        let kept = kept.map(str::to_ascii_lowercase);
        kept.filter(|line| !changing.iter().any(|c| line.starts_with(c))).collect::<Vec<_>>()
    };
    for path in [DOMAIN, "/v1/usage", "/v1/nowhere", "/v1/public/domain/no", "/v1/check/a@b.com"] {
        let (old, new) = (curl(&["--http1.1"], path), curl(&["--http2"], path));
        assert!(old.starts_with("HTTP/1.1 ") && new.starts_with("HTTP/2 "), "{old}{new}");
        assert_eq!(old.split(' ').nth(1), new.split(' ').nth(1).map(str::trim), "{path}");
        assert_eq!(told(&old), told(&new).clone(), "{path}");
    }
    assert!(upstream.last_request().request_line().ends_with(" HTTP/1.1"));
    assert_eq!(
        upstream.last_request().header("X-Forwarded-Host"),
        format!("gate.test:{}", at.port())
    );
    let seven = gateway.get_month_count(&key);
    assert_eq!(seven, 6, "three counted calls, twice each");
}

#[test]
fn without_h2c_a_preface_is_no_request() {
    let gateway = Setup::new().start();
    let mut connection = gateway.connect();
    connection.send(PREFACE);
    connection.read_response().expect("an answer").expect(400);
    assert!(connection.is_closed_by_peer());
}

#[test]
fn with_h2c_both_are_spoken_and_every_request_is_held_to_the_same_grammar() {
    let (gateway, key) = start_h2c_gateway();
    gateway.get_domain("first.test", &key).expect(200);
    let long = format!("/v1/public/domain/{}", "a".repeat(3000));
    let many: Vec<(String, String)> =
        (0..70).map(|at| (format!("x-{at}"), "1".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let big = "b".repeat(20_000);
    let mut frames = Frames::open(gateway.http);
    let mut stream = 1;
    for (status, counted, block, body) in [
        (200, 1, request("GET", DOMAIN, &key, &[]), false),
        (200, 1, request("HEAD", DOMAIN, &key, &[]), false),
        (422, 1, request("GET", "/v1/public/domain/no", &key, &[]), false),
        (401, 0, request("GET", DOMAIN, "rg_nobody", &[]), false),
        (401, 0, request("GET", DOMAIN, &key, &[("authorization", "Bearer x")]), false),
        (404, 0, request("GET", "/v1/../v1/usage", &key, &[]), false),
        (405, 0, request("DELETE", DOMAIN, &key, &[]), false),
        (405, 0, request("TRACE", DOMAIN, &key, &[]), false),
        (414, 0, request("GET", &long, &key, &[]), false),
        (431, 0, request("GET", DOMAIN, &key, &many), false),
        (431, 0, request("GET", DOMAIN, &key, &[("x-big", &big)]), false),
        // A method without a body accepts neither an announced nor an unannounced body.
        (400, 0, request("GET", DOMAIN, &key, &[("content-length", "3")]), true),
        (400, 0, request("GET", DOMAIN, &key, &[]), true),
        (400, 0, request("GET", DOMAIN, &key, &[("host", "other.test")]), false),
        (200, 1, request("GET", DOMAIN, &key, &[("host", "gate.test")]), false),
        // Connection-specific fields are a stream error (RFC 9113 section 8.2.2).
        (0, 0, request("GET", DOMAIN, &key, &[("connection", "close")]), false),
        (0, 0, request("GET", DOMAIN, &key, &[("transfer-encoding", "chunked")]), false),
        (200, 1, request("GET", DOMAIN, &key, &[]), false),
    ] {
        let before = gateway.get_month_count(&key);
        let end = if body { 0 } else { END_STREAM };
        for (at, part) in block.chunks(16_000).enumerate() {
            let last = (at + 1) * 16_000 >= block.len();
            let flags = if last { END_HEADERS } else { 0 };
            let kind = if at == 0 { HEADERS } else { CONTINUATION };
            let flags = if at == 0 { flags | end } else { flags };
            assert!(frames.send(&frame(kind, flags, stream, part)));
        }
        if body {
            assert!(frames.send(&frame(DATA, END_STREAM, stream, b"abc")));
        }
        assert_eq!(frames.status(stream), status, "stream {stream}");
        assert_eq!(gateway.get_month_count(&key), before + counted, "stream {stream}, {status}");
        stream += 2;
    }
    // An invalid field name closes the connection.
    let mut frames = Frames::open(gateway.http);
    let block = request("GET", DOMAIN, &key, &[("Upper", "case")]);
    assert!(frames.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)));
    assert!(frames.goaway_error_code().is_some());
}

/// The n-th part of a flood of frames.
type Flood<'f> = dyn Fn(u32) -> Vec<u8> + Sync + 'f;

#[test]
fn floods_end_in_goaway_with_flat_memory_and_others_are_served() {
    let (gateway, key) = start_h2c_gateway();
    let memory = || resident_kb(gateway.pid());
    gateway.get_domain("first.test", &key).expect(200);
    let before = memory();
    let get = request("GET", DOMAIN, &key, &[]);
    let floods: [(&str, Box<Flood<'_>>); 4] = [
        (
            "rapid reset",
            Box::new(|at| {
                let stream = at * 2 + 1;
                let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get);
                bytes.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
                bytes
            }),
        ),
        (
            "continuation",
            Box::new(|at| match at {
                0 => frame(HEADERS, END_STREAM, 1, &get),
                _ => frame(CONTINUATION, 0, 1, &field(&format!("x-{at}"), &"y".repeat(200))),
            }),
        ),
        ("settings", Box::new(|_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]))),
        ("ping", Box::new(|_| frame(PING, 0, 0, b"12345678"))),
    ];
    for (name, flood) in &floods {
        std::thread::scope(|scope| {
            let attackers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut frames = Frames::open(gateway.http);
                        let begun = Instant::now();
                        let mut at = 0;
                        // This client never reads: riskgate must not buffer its responses without
                        // limit.
                        frames.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
                        while begun.elapsed() < Duration::from_secs(2) && at < 200_000 {
                            let bytes: Vec<u8> = (at..at + 50).flat_map(flood).collect();
                            if !frames.send(&bytes) {
                                break;
                            }
                            at += 50;
                        }
                        frames.stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                        let goodbye = frames.goaway_error_code();
                        // The kernel may have accepted some bytes after riskgate closed.
                        let ping = frame(PING, 0, 0, b"12345678");
                        let ended = (0..100).any(|_| {
                            std::thread::sleep(Duration::from_millis(50));
                            !frames.send(&ping)
                        });
                        (at, goodbye, ended)
                    })
                })
                .collect();
            for _ in 0..20 {
                gateway.get_domain("first.test", &key).expect(200);
            }
            for attacker in attackers {
                let (sent, goodbye, ended) = attacker.join().unwrap();
                // 11 is ENHANCE_YOUR_CALM, 1 is PROTOCOL_ERROR. A reset may overtake the frame.
                assert!(matches!(goodbye, Some(1 | 11) | None), "{name}: {goodbye:?}");
                assert!(ended, "{name}: after {sent} frames it goes on");
            }
        });
        let after = memory();
        assert!(after < before + 40_000, "{name}: {before} kB became {after} kB");
    }
    assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
}

/// Resident memory in kB.
fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn an_idle_connection_is_closed_and_a_drain_sends_goaway() {
    let setup = Setup::new().set("listen.h2c", "true").set_text("listen.keepalive_timeout", "1s");
    let mut gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let ask = frame(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", DOMAIN, &key, &[]));
    let mut idle = Frames::open(gateway.http);
    assert!(idle.send(&ask));
    assert_eq!(idle.status(1), 200);
    assert_eq!(idle.goaway_error_code(), Some(0));
    // One client sends only its preface, another a header that never ends.
    let mut silent = Frames::open(gateway.http);
    assert_eq!(silent.goaway_error_code(), Some(0));
    let mut endless = Frames::open(gateway.http);
    assert!(endless.send(&frame(HEADERS, END_STREAM, 1, &field(":method", "GET"))));
    assert!(matches!(endless.goaway_error_code(), Some(0) | None));

    let mut busy = Frames::open(gateway.http);
    assert!(busy.send(&ask));
    assert_eq!(busy.status(1), 200);
    gateway.send_signal("TERM");
    assert_eq!(busy.goaway_error_code(), Some(0));
    drop(busy);
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
}

#[test]
fn more_streams_than_allowed_are_refused_one_by_one() {
    let silent = MockUpstream::with_script(|_| vec![crate::harness::Step::StaySilent]);
    let setup = Setup::new().set("listen.h2c", "true").set("listen.max_streams", "5");
    let gateway = setup.upstream(&[silent.address]).start();
    let key = gateway.create_active_key("acme", &[]);
    let mut frames = Frames::open(gateway.http);
    // The limit applies after the client has acknowledged the settings.
    while let Some((kind, flags, _, _)) = frames.next_frame() {
        if kind == SETTINGS && flags == 0 {
            assert!(frames.send(&frame(SETTINGS, 1, 0, &[])));
            break;
        }
    }
    let ask = request("GET", "/v1/check/a@b.com", &key, &[]);
    for stream in 0..9 {
        assert!(frames.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream * 2 + 1, &ask)));
    }
    let mut refused = 0;
    while refused < 4 {
        let (kind, _, _, payload) = frames.next_frame().expect("a refusal");
        // 7 is REFUSED_STREAM: the client may try again.
        refused += u32::from(kind == RST_STREAM && payload == [0, 0, 0, 7]);
    }
    wait_until("the others are under way", || silent.request_count() == 5);
    assert_eq!(
        gateway.send_request(&get("/v1/usage").key(&key)).expect(200).json()["month_count"],
        5
    );
}
