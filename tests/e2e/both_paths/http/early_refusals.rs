//! Requests that riskgate refuses before the gates, because they are malformed or too large: their
//! responses follow the rules of all responses, and their log lines name the connection.

use std::net::TcpStream;
use std::process::Command;

use crate::harness::http2_frames::{
    DATA, END_STREAM, FrameClient, HEADERS, decode_status, encode_fields, encode_frame,
    encode_header_frames,
};
use crate::harness::{
    CertificateAuthority, Connection, Gateway, Setup, free_address, run_command, wait_until,
};

const HSTS: &str = "Strict-Transport-Security";

fn start_with_tls(setup: Setup) -> (Gateway, CertificateAuthority) {
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificate = authority.issue_certificate("first", "DNS:gate.test,IP:127.0.0.1");
    let setup = setup.set("listen.h2c", "true").set_text("listen.hsts", "365d");
    (setup.with_certificates(&[certificate]).start(), authority)
}

/// Requests with this method that riskgate refuses over HTTP/1.1, with the status.
fn refused_requests(method: &str) -> Vec<(u16, String)> {
    let many: String = (0..70).map(|at| format!("x-{at}: 1\r\n")).collect();
    let long = "a".repeat(3_000);
    let big = "b".repeat(20_000);
    [
        (400, format!("{method} /v1/usage HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")),
        (400, format!("{method} /v1/usage HTTP/1.1\r\n\r\n")),
        (400, format!("{method} /v1/usage HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")),
        (400, format!("{method} /v1/usage HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n")),
        (400, format!("{method} /v1/\x01 HTTP/1.1\r\nHost: a\r\n\r\n")),
        (400, format!("{method} /v1/usage HTTP/1.1\nHost: a\n\n")),
        (414, format!("{method} /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        (414, format!("\r\n{method} /{long}")),
        (417, format!("{method} /v1/usage HTTP/1.1\r\nHost: a\r\nExpect: else\r\n\r\n")),
        (431, format!("{method} /v1/usage HTTP/1.1\r\nHost: a\r\n{many}\r\n")),
        (431, format!("{method} /v1/usage HTTP/1.1\r\nHost: a\r\nx: {big}\r\n\r\n")),
    ]
    .into()
}

/// Sends a request that riskgate refuses, on a connection of its own.
fn assert_is_refused(mut connection: Connection, method: &str, status: u16, bytes: &str) {
    connection.send(bytes.as_bytes());
    let answer = connection.read_response_to(method).expect("an answer").expect(status);
    assert!(answer.header("Content-Length").unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(answer.body.is_empty(), method == "HEAD", "{bytes:?}");
    let rest = connection.read_to_end();
    assert!(rest.is_empty(), "{bytes:?}: {}", String::from_utf8_lossy(&rest));
}

#[test]
fn a_refused_head_has_no_body_over_http_1_1() {
    let (gateway, authority) = start_with_tls(Setup::new());
    for method in ["HEAD", "GET"] {
        for (status, bytes) in refused_requests(method) {
            assert_is_refused(gateway.connect(), method, status, &bytes);
            let tls = authority.connect_with_tls(gateway.https_address(), "gate.test");
            assert_is_refused(tls, method, status, &bytes);
        }
    }
}

#[test]
fn a_refused_head_has_no_body_over_http_2() {
    let (gateway, _) = start_with_tls(Setup::new());
    let long = format!("/{}", "a".repeat(3_000));
    let many: Vec<(String, String)> =
        (0..70).map(|at| (format!("x-{at}"), "1".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let big = "b".repeat(20_000);
    let mut client = FrameClient::open(gateway.http);
    let mut stream = 1;
    for method in ["HEAD", "GET"] {
        for (status, path, more) in [
            (400, "/v1/usage", &[("content-length", "x")][..]),
            (400, "/v1/usage", &[("content-length", "3")]),
            // With a body, which these methods may not have.
            (400, "/v1/nowhere", &[]),
            (414, &long, &[]),
            (417, "/v1/usage", &[("expect", "else")]),
            (431, "/v1/usage", &many),
            (431, "/v1/usage", &[("x-big", &big)]),
        ] {
            let fields = [(":method", method), (":scheme", "http"), (":path", path)];
            let mut block = encode_fields(&fields);
            block.extend(encode_fields(&[(":authority", "gate.test")]));
            block.extend(encode_fields(more));
            let mut frames = encode_header_frames(stream, &block);
            if path == "/v1/nowhere" {
                // The header does not end the stream.
                frames[4] &= !END_STREAM;
                frames.extend(encode_frame(DATA, END_STREAM, stream, b"abc"));
            }
            assert!(client.try_send(&frames));
            let seen = read_stream(&mut client, stream);
            // The h2 crate resets a stream whose length is malformed or contradicts its end.
            let is_reset = more.iter().any(|(name, _)| *name == "content-length");
            match seen {
                StreamEnd::Response { status: seen, body_bytes } if !is_reset => {
                    assert_eq!(seen, status, "{method} {status}");
                    assert_eq!(body_bytes == 0, method == "HEAD", "{method} {status}");
                }
                StreamEnd::Reset if is_reset => {}
                other => panic!("{method} {status}: {other:?}"),
            }
            stream += 2;
        }
    }
}

#[derive(Debug)]
enum StreamEnd {
    Response { status: u16, body_bytes: usize },
    Reset,
}

/// Reads the response of a stream to its end.
fn read_stream(client: &mut FrameClient<TcpStream>, wanted: u32) -> StreamEnd {
    let (mut status, mut body_bytes) = (0, 0);
    loop {
        let (kind, flags, stream, payload) = client.read_frame().expect("an answer");
        if stream != wanted {
            continue;
        }
        match kind {
            HEADERS => status = decode_status(&payload),
            DATA => body_bytes += payload.len(),
            _ => return StreamEnd::Reset,
        }
        if flags & END_STREAM != 0 {
            return StreamEnd::Response { status, body_bytes };
        }
    }
}

#[test]
fn a_real_client_gets_the_status_of_a_refused_head() {
    let (gateway, authority) = start_with_tls(Setup::new());
    let at = gateway.https_address();
    let long = "a".repeat(3_000);
    for version in ["--http1.1", "--http2"] {
        for (status, path, field) in [
            ("414", long.as_str(), "A: b"),
            ("417", "v1/usage", "Expect: else"),
            ("400", "v1/usage", "Content-Length: 3"),
        ] {
            let mut curl = Command::new("curl");
            curl.args(["-s", "-I", "--max-time", "20", version, "-H", field, "--cacert"]);
            curl.arg(authority.certificate_path());
            curl.args(["--resolve", &format!("gate.test:{}:127.0.0.1", at.port())]);
            curl.args(["-o", "/dev/null", "-w", "%{http_code} %header{strict-transport-security}"]);
            let ran = run_command(curl.arg(format!("https://gate.test:{}/{path}", at.port())));
            if version == "--http2" && status == "400" {
                // h2 resets a stream that ends before the announced body has come.
                continue;
            }
            assert_eq!(ran.exit_code, 0, "{version} {status}: {}", ran.stderr);
            assert_eq!(ran.stdout, format!("{status} max-age=31536000"), "{version}");
        }
    }
}

#[test]
fn refusals_before_the_gates_over_tls_name_the_time_and_log_their_connection() {
    let setup = Setup::new();
    let log = setup.path("access.log").display().to_string();
    let fields = r#"["request_id", "protocol", "tls", "response_bytes", "outcome"]"#;
    let setup = setup.set_text("log.path", &log).set("log.fields", fields);
    let (gateway, authority) = start_with_tls(setup);
    let refused = |mut connection: Connection, bytes: &[u8]| {
        connection.send(bytes);
        let answer = connection.read_response().expect("an answer").expect(400);
        let hsts = answer.header(HSTS).map(str::to_owned);
        (hsts, answer.header("X-Request-Id").unwrap().to_owned(), answer.body.len() as u64)
    };
    let tls = || authority.connect_with_tls(gateway.https_address(), "gate.test");
    let time = Some("max-age=31536000".to_owned());
    for (connection, bytes, expected_hsts, protocol, tls) in [
        (tls(), &b"GET / HTTP/1.1\r\n\r\n"[..], &time, "HTTP/1.1", Some("TLSv1.3")),
        (tls(), b"GET / HTTP/1.0\r\nA\r\n\r\n", &time, "HTTP/1.0", Some("TLSv1.3")),
        (tls(), b"\x00", &time, "HTTP/1.1", Some("TLSv1.3")),
        (gateway.connect(), b"GET / HTTP/1.1\r\n\r\n", &None, "HTTP/1.1", None),
    ] {
        let (hsts, id, length) = refused(connection, bytes);
        assert_eq!(&hsts, expected_hsts, "{bytes:?}");
        let find = || gateway.read_access_log().into_iter().find(|line| line["request_id"] == *id);
        wait_until("it is logged", || find().is_some());
        let line = find().unwrap();
        assert_eq!(line["protocol"], protocol, "{line}");
        assert_eq!(line["tls"].as_str(), tls, "{line}");
        assert_eq!(line["response_bytes"], length, "{line}");
        assert_eq!(line["outcome"], "bad_request", "{line}");
    }
    let at = gateway.https_address();
    let before = gateway.access_log_length();
    let mut curl = Command::new("curl");
    curl.args(["-s", "--max-time", "20", "--http2", "-H", "Expect: else", "--cacert"]);
    curl.arg(authority.certificate_path());
    curl.args(["--resolve", &format!("gate.test:{}:127.0.0.1", at.port())]);
    let ran = run_command(curl.arg(format!("https://gate.test:{}/", at.port())));
    wait_until("it is logged", || gateway.access_log_length() > before);
    let line = &gateway.read_access_log_from(before)[0];
    assert_eq!(
        (line["protocol"].as_str(), line["tls"].as_str()),
        (Some("HTTP/2"), Some("TLSv1.3"))
    );
    assert_eq!(line["response_bytes"], ran.stdout.len() as u64, "{line}");
}

#[test]
fn the_redirect_listener_sends_no_body() {
    let redirect = free_address();
    let (_gateway, _) =
        start_with_tls(Setup::new().set_text("listen.redirect", &redirect.to_string()));
    for (status, bytes) in [
        (308, &b"HEAD /a HTTP/1.1\r\nHost: gate.test\r\n\r\n"[..]),
        (308, b"GET /a HTTP/1.1\r\nHost: gate.test\r\n\r\n"),
        (400, b"HEAD /a HTTP/1.1\r\n\r\n"),
        (400, b"\x00\r\n\r\n"),
    ] {
        let mut connection = Connection::open(redirect);
        connection.send(bytes);
        connection.read_response_to("HEAD").expect("an answer").expect(status);
        assert!(connection.read_to_end().is_empty(), "{bytes:?}");
    }
}
