//! HTTP/2: the same responses as over HTTP/1.1, the limits, and floods of frames.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::harness::http2_frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, PING, PREFACE, RST_STREAM,
    SETTINGS, encode_field, encode_fields, encode_frame, encode_header_frames,
    encode_request_fields,
};
use crate::harness::{
    CertificateAuthority, Gateway, MockUpstream, Setup, get, response_bytes, run_command,
    wait_until,
};

const DOMAIN: &str = "/v1/public/domain/first.test";
fn start_h2c_gateway() -> (Gateway, String) {
    let gateway = Setup::new().set("listen.h2c", "true").set("plans.free", "1000000").start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

#[test]
fn http2_by_alpn_gets_the_same_responses_as_http_1_1() {
    let upstream = MockUpstream::with_script(|_| {
        vec![crate::harness::Step::Send(response_bytes(200, "", "whole"))]
    });
    let setup = Setup::new().with_upstreams(&[upstream.address]);
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificate = authority.issue_certificate("first", "DNS:gate.test");
    let gateway = setup.with_certificates(&[certificate]).start();
    let key = gateway.create_active_key("acme", &[]);
    let at = gateway.https_address();
    let curl = |more: &[&str], path: &str| {
        let mut command = std::process::Command::new("curl");
        command
            .args(["-s", "-i", "--max-time", "20", "--cacert"])
            .arg(authority.certificate_path());
        command.args(["--resolve", &format!("gate.test:{}:127.0.0.1", at.port())]);
        command.args(["-H", &format!("Authorization: Bearer {key}")]).args(more);
        let ran = run_command(command.arg(format!("https://gate.test:{}{path}", at.port())));
        assert_eq!(ran.exit_code, 0, "{}", ran.stderr);
        ran.stdout
    };
    let compared_lines = |text: &str| {
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
        assert_eq!(compared_lines(&old), compared_lines(&new).clone(), "{path}");
    }
    assert!(upstream.last_request().request_line().ends_with(" HTTP/1.1"));
    assert_eq!(
        upstream.last_request().header("X-Forwarded-Host"),
        format!("gate.test:{}", at.port())
    );
    let month_count = gateway.get_month_count(&key);
    assert_eq!(month_count, 6, "three counted calls, twice each");
}

#[test]
fn without_listen_h2c_an_http2_preface_gets_a_400() {
    let gateway = Setup::new().start();
    let mut connection = gateway.connect();
    connection.send(PREFACE);
    connection.read_response().expect("an answer").expect(400);
    assert!(connection.ends_without_more_bytes());
}

#[test]
fn with_listen_h2c_http2_requests_are_checked_as_strictly_as_http_1_1() {
    let (gateway, key) = start_h2c_gateway();
    gateway.get_domain("first.test", &key).expect(200);
    let long = format!("/v1/public/domain/{}", "a".repeat(3000));
    let many: Vec<(String, String)> =
        (0..70).map(|at| (format!("x-{at}"), "1".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let big = "b".repeat(20_000);
    let mut frames = FrameClient::open(gateway.http);
    let mut stream = 1;
    for (status, counted, block, body) in [
        (200, 1, encode_request_fields("GET", DOMAIN, &key, &[]), false),
        (200, 1, encode_request_fields("HEAD", DOMAIN, &key, &[]), false),
        (422, 1, encode_request_fields("GET", "/v1/public/domain/no", &key, &[]), false),
        (401, 0, encode_request_fields("GET", DOMAIN, "rg_nobody", &[]), false),
        (
            401,
            0,
            encode_request_fields("GET", DOMAIN, &key, &[("authorization", "Bearer x")]),
            false,
        ),
        (404, 0, encode_request_fields("GET", "/v1/../v1/usage", &key, &[]), false),
        (405, 0, encode_request_fields("DELETE", DOMAIN, &key, &[]), false),
        (405, 0, encode_request_fields("TRACE", DOMAIN, &key, &[]), false),
        (405, 0, encode_request_fields("trace", DOMAIN, &key, &[]), false),
        (405, 0, encode_request_fields("get", DOMAIN, &key, &[]), false),
        (414, 0, encode_request_fields("GET", &long, &key, &[]), false),
        (431, 0, encode_request_fields("GET", DOMAIN, &key, &many), false),
        (431, 0, encode_request_fields("GET", DOMAIN, &key, &[("x-big", &big)]), false),
        (431, 0, encode_request_fields("GET", DOMAIN, &key, &[("x-big", &big.repeat(3))]), false),
        // A method without a body accepts neither an announced nor an unannounced body.
        (400, 0, encode_request_fields("GET", DOMAIN, &key, &[("content-length", "3")]), true),
        (400, 0, encode_request_fields("GET", DOMAIN, &key, &[]), true),
        (400, 0, encode_request_fields("GET", DOMAIN, &key, &[("host", "other.test")]), false),
        (200, 1, encode_request_fields("GET", DOMAIN, &key, &[("host", "gate.test")]), false),
        // Connection-specific fields are a stream error (RFC 9113 section 8.2.2).
        (0, 0, encode_request_fields("GET", DOMAIN, &key, &[("connection", "close")]), false),
        (
            0,
            0,
            encode_request_fields("GET", DOMAIN, &key, &[("transfer-encoding", "chunked")]),
            false,
        ),
        (200, 1, encode_request_fields("GET", DOMAIN, &key, &[]), false),
    ] {
        let before = gateway.get_month_count(&key);
        let end = if body { 0 } else { END_STREAM };
        for (at, part) in block.chunks(16_000).enumerate() {
            let last = (at + 1) * 16_000 >= block.len();
            let flags = if last { END_HEADERS } else { 0 };
            let kind = if at == 0 { HEADERS } else { CONTINUATION };
            let flags = if at == 0 { flags | end } else { flags };
            assert!(frames.try_send(&encode_frame(kind, flags, stream, part)));
        }
        if body {
            assert!(frames.try_send(&encode_frame(DATA, END_STREAM, stream, b"abc")));
        }
        assert_eq!(frames.read_status(stream), status, "stream {stream}");
        assert_eq!(gateway.get_month_count(&key), before + counted, "stream {stream}, {status}");
        stream += 2;
    }
    // An invalid field name closes the connection.
    let mut frames = FrameClient::open(gateway.http);
    let block = encode_request_fields("GET", DOMAIN, &key, &[("Upper", "case")]);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)));
    assert!(frames.read_goaway_error_code().is_some());
}

#[test]
fn a_get_may_end_its_stream_behind_the_header() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().set("listen.h2c", "true").with_upstreams(&[upstream.address]);
    let route =
        "[[upstream.route]]\nprefix = \"/shop\"\nmethods = [\"GET\", \"HEAD\"]\nkey = false\n";
    let gateway = setup.append_toml(route).set_text("listen.body_timeout", "1s").start();
    let key = gateway.create_active_key("acme", &[]);
    let trailer = encode_fields(&[("x-end", "1")]);
    let mut frames = FrameClient::open(gateway.http);
    let data = |stream, flags, bytes: &[u8]| encode_frame(DATA, flags, stream, bytes);
    for (stream, method, path, status) in [
        (1, "GET", "/shop", 200),
        (3, "HEAD", "/shop", 200),
        (5, "GET", DOMAIN, 200),
        (7, "GET", "/nowhere", 404),
    ] {
        let block = encode_request_fields(method, path, &key, &[]);
        assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, stream, &block)));
        assert!(frames.try_send(&data(stream, 0, b"")));
        assert!(frames.try_send(&data(stream, END_STREAM, b"")));
        assert_eq!(frames.read_status(stream), status, "{method} {path}");
    }
    assert_eq!(upstream.request_count(), 2);
    for seen in upstream.received_requests() {
        for framing in ["Content-Length", "Transfer-Encoding"] {
            assert!(seen.header_values(framing).is_empty(), "{}", seen.head);
        }
    }
    // A body with a byte, trailers, and a stream that does not end.
    let head = |stream| {
        let block = encode_request_fields("GET", "/shop", &key, &[]);
        encode_frame(HEADERS, END_HEADERS, stream, &block)
    };
    for (stream, status, behind) in [
        (11, 400, [data(11, 0, b""), data(11, END_STREAM, b"a")].concat()),
        (13, 400, encode_frame(HEADERS, END_HEADERS | END_STREAM, 13, &trailer)),
        (15, 408, data(15, 0, b"")),
    ] {
        assert!(frames.try_send(&[head(stream), behind].concat()));
        assert_eq!(frames.read_status(stream), status);
    }
    assert_eq!(upstream.request_count(), 2);
}

#[test]
fn cookies_that_a_client_divides_count_as_one_field() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().set("listen.h2c", "true").with_upstreams(&[upstream.address]);
    let route =
        "[[upstream.route]]\nprefix = \"/shop\"\nmethods = [\"GET\", \"POST\"]\nkey = false\n";
    let gateway = setup.append_toml(route).start();
    let mut frames = FrameClient::open(gateway.http);
    // A browser keeps 180 cookies of a site, and may send each as a field of its own.
    let cookies: Vec<String> = (0..180).map(|at| format!("name{at}=value{at}")).collect();
    let mut more: Vec<(&str, &str)> = cookies.iter().map(|c| ("cookie", c.as_str())).collect();
    more.insert(90, ("x-between", "1"));
    let ask = |frames: &mut FrameClient, stream: u32, more: &[(&str, &str)]| {
        let block = encode_request_fields("GET", "/shop", "none", more);
        assert!(frames.try_send(&encode_header_frames(stream, &block)));
        frames.read_status(stream)
    };
    assert_eq!(ask(&mut frames, 1, &more), 200);
    let seen = upstream.last_request();
    assert_eq!(seen.header_values("Cookie"), [cookies.join("; ")]);
    // Cookies with as many bytes as a whole header get the same answer as over HTTP/1.1.
    let big: Vec<String> = (0..156).map(|at| format!("c{at}={}", "v".repeat(100))).collect();
    let more: Vec<(&str, &str)> = big.iter().map(|cookie| ("cookie", cookie.as_str())).collect();
    assert_eq!(ask(&mut frames, 3, &more[..140]), 200);
    assert_eq!(ask(&mut frames, 5, &more), 431);
    let over_http1 = |cookies: &[String]| {
        let cookie = cookies.join("; ");
        gateway.send_request(&get("/shop").key("none").with_header("Cookie", &cookie)).status
    };
    assert_eq!((over_http1(&big[..140]), over_http1(&big)), (200, 431));
}

/// The n-th part of a flood of frames.
type FloodPartBuilder<'f> = dyn Fn(u32) -> Vec<u8> + Sync + 'f;

#[test]
fn http2_frame_floods_are_disconnected_and_other_clients_are_served() {
    let (gateway, key) = start_h2c_gateway();
    let memory = || resident_memory_kib(gateway.pid());
    gateway.get_domain("first.test", &key).expect(200);
    let before = memory();
    let get = encode_request_fields("GET", DOMAIN, &key, &[]);
    let floods: [(&str, Box<FloodPartBuilder<'_>>); 4] = [
        (
            "rapid reset",
            Box::new(|at| {
                let stream = at * 2 + 1;
                let mut bytes = encode_frame(HEADERS, END_HEADERS | END_STREAM, stream, &get);
                bytes.extend(encode_frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
                bytes
            }),
        ),
        (
            "continuation",
            Box::new(|at| match at {
                0 => encode_frame(HEADERS, END_STREAM, 1, &get),
                _ => encode_frame(
                    CONTINUATION,
                    0,
                    1,
                    &encode_field(&format!("x-{at}"), &"y".repeat(200)),
                ),
            }),
        ),
        ("settings", Box::new(|_| encode_frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]))),
        ("ping", Box::new(|_| encode_frame(PING, 0, 0, b"12345678"))),
    ];
    for (name, flood) in &floods {
        std::thread::scope(|scope| {
            let attackers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| send_flood(gateway.http, flood))).collect();
            for _ in 0..20 {
                gateway.get_domain("first.test", &key).expect(200);
            }
            for attacker in attackers {
                let (sent, error_code, ended) = attacker.join().unwrap();
                // 11 is ENHANCE_YOUR_CALM, 1 is PROTOCOL_ERROR. A reset may overtake the frame.
                assert!(matches!(error_code, Some(1 | 11) | None), "{name}: {error_code:?}");
                assert!(ended, "{name}: after {sent} frames it goes on");
            }
        });
        let after = memory();
        assert!(after < before + 40_000, "{name}: {before} kB became {after} kB");
    }
    assert_eq!(gateway.sum_of_samples("riskgate_panics_total", &[]), 0.0);
}

/// Sends a flood for at most two seconds, or until riskgate closes the connection. Returns the
/// number of sent parts, the error code of the GOAWAY frame if one came, and true if riskgate
/// closed the connection.
fn send_flood(address: SocketAddr, flood: &FloodPartBuilder<'_>) -> (u32, Option<u32>, bool) {
    let mut frames = FrameClient::open(address);
    let begun = Instant::now();
    let mut at = 0;
    // This client never reads: riskgate must not buffer its responses without limit.
    frames.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    while begun.elapsed() < Duration::from_secs(2) && at < 200_000 {
        let bytes: Vec<u8> = (at..at + 50).flat_map(flood).collect();
        if !frames.try_send(&bytes) {
            break;
        }
        at += 50;
    }
    frames.stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let error_code = frames.read_goaway_error_code();
    // The kernel may have accepted some bytes after riskgate closed.
    let ping = encode_frame(PING, 0, 0, b"12345678");
    let ended = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        !frames.try_send(&ping)
    });
    (at, error_code, ended)
}

/// Resident memory in KiB.
fn resident_memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn idle_http2_connections_and_a_drain_end_with_goaway() {
    let setup = Setup::new().set("listen.h2c", "true").set_text("listen.keepalive_timeout", "1s");
    let mut gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    let ask = encode_frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &encode_request_fields("GET", DOMAIN, &key, &[]),
    );
    let mut idle = FrameClient::open(gateway.http);
    assert!(idle.try_send(&ask));
    assert_eq!(idle.read_status(1), 200);
    assert_eq!(idle.read_goaway_error_code(), Some(0));
    // One client sends only its preface, another a header that never ends.
    let mut silent = FrameClient::open(gateway.http);
    assert_eq!(silent.read_goaway_error_code(), Some(0));
    let mut endless = FrameClient::open(gateway.http);
    assert!(endless.try_send(&encode_frame(
        HEADERS,
        END_STREAM,
        1,
        &encode_field(":method", "GET")
    )));
    assert!(matches!(endless.read_goaway_error_code(), Some(0) | None));

    let mut busy = FrameClient::open(gateway.http);
    assert!(busy.try_send(&ask));
    assert_eq!(busy.read_status(1), 200);
    gateway.send_signal("TERM");
    assert_eq!(busy.read_goaway_error_code(), Some(0));
    drop(busy);
    assert_eq!(gateway.wait_for_exit().code(), Some(0), "{}", gateway.stderr());
}

#[test]
fn http2_streams_beyond_listen_max_streams_are_refused() {
    let silent = MockUpstream::with_script(|_| vec![crate::harness::Step::StaySilent]);
    let setup = Setup::new().set("listen.h2c", "true").set("listen.max_streams", "5");
    let gateway = setup.with_upstreams(&[silent.address]).start();
    let key = gateway.create_active_key("acme", &[]);
    let mut frames = FrameClient::open(gateway.http);
    // The limit applies after the client has acknowledged the settings.
    while let Some((kind, flags, _, _)) = frames.read_frame() {
        if kind == SETTINGS && flags == 0 {
            assert!(frames.try_send(&encode_frame(SETTINGS, 1, 0, &[])));
            break;
        }
    }
    let ask = encode_request_fields("GET", "/v1/check/a@b.com", &key, &[]);
    for stream in 0..9 {
        assert!(frames.try_send(&encode_frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            stream * 2 + 1,
            &ask
        )));
    }
    let mut refused = 0;
    while refused < 4 {
        let (kind, _, _, payload) = frames.read_frame().expect("a refusal");
        // 7 is REFUSED_STREAM: the client may try again.
        refused += u32::from(kind == RST_STREAM && payload == [0, 0, 0, 7]);
    }
    wait_until("the others are under way", || silent.request_count() == 5);
    assert_eq!(
        gateway.send_request(&get("/v1/usage").key(&key)).expect(200).json()["month_count"],
        5
    );
}

#[test]
fn blanks_around_a_value_are_malformed() {
    let gateway = Setup::new().set("listen.h2c", "true").start();
    let status_with = |value: &str| {
        let block = encode_request_fields("GET", "/v1/usage", "", &[("x-foo", value)]);
        let mut frames = FrameClient::open(gateway.http);
        assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)));
        frames.read_status(1)
    };
    assert_eq!(status_with("a b"), 401);
    for value in [" a", "a ", "\ta"] {
        assert_eq!(status_with(value), 400, "{value:?}");
    }
}
