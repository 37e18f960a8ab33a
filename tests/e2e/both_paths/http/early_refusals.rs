//! Requests that riskgate refuses before the gates, because they are malformed or too large: their
//! responses follow the rules of all responses, and their log lines name the connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::json;

use crate::harness::http2_frames::{
    DATA, END_STREAM, FrameClient, HEADERS, decode_fields, decode_status, encode_fields,
    encode_frame, encode_header_frames,
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
    let long = format!("v1/usage?{}", "a".repeat(3_000));
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
    let long = format!("/v1/usage?{}", "a".repeat(3_000));
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
            // With a body, which these methods may not have. The route comes before the body.
            (404, "/v1/nowhere", &[]),
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

/// What a client saw of a refusal.
#[derive(Debug)]
struct SeenRefusal {
    status: u16,
    fields: Vec<(String, String)>,
    body_bytes: usize,
}

impl SeenRefusal {
    fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Sends a request that riskgate refuses with this status over HTTP/1, on a connection of its own.
fn ask_http1(mut connection: Connection, status: u16, method: &str, protocol: &str) -> SeenRefusal {
    let long = format!("v1/usage?{}", "a".repeat(3_000));
    let many: String = (0..70).map(|at| format!("x-{at}: 1\r\n")).collect();
    let (path, more) = match status {
        400 => ("v1/usage", "Host: other\r\n"),
        414 => (long.as_str(), ""),
        417 => ("v1/usage", "Expect: else\r\n"),
        _ => ("v1/usage", many.as_str()),
    };
    connection.send(format!("{method} /{path} {protocol}\r\nHost: a\r\n{more}\r\n").as_bytes());
    let answer = connection.read_response_to(method).expect("an answer");
    assert!(connection.read_to_end().is_empty(), "{method} {status}");
    SeenRefusal { status: answer.status, fields: answer.headers, body_bytes: answer.body.len() }
}

/// Sends a request that riskgate refuses with this status on a stream of HTTP/2.
fn ask_http2<S: Read + Write>(
    client: &mut FrameClient<S>,
    stream: u32,
    status: u16,
    method: &str,
) -> SeenRefusal {
    let long = format!("/v1/usage?{}", "a".repeat(3_000));
    let path = if status == 414 { long.as_str() } else { "/v1/usage" };
    let mut block = encode_fields(&[(":method", method), (":scheme", "http"), (":path", path)]);
    let authority = if status == 400 { "gate.test:99999" } else { "gate.test" };
    block.extend(encode_fields(&[(":authority", authority)]));
    let names: Vec<String> = (0..70).map(|at| format!("x-{at}")).collect();
    for name in names.iter().filter(|_| status == 431) {
        block.extend(encode_fields(&[(name, "1")]));
    }
    block.extend(encode_fields(if status == 417 { &[("expect", "else")] } else { &[] }));
    assert!(client.try_send(&encode_header_frames(stream, &block)));
    let mut seen = SeenRefusal { status: 0, fields: Vec::new(), body_bytes: 0 };
    loop {
        let (kind, flags, of_stream, payload) = client.read_frame().expect("an answer");
        if of_stream != stream {
            continue;
        }
        match kind {
            HEADERS => {
                (seen.status, seen.fields) = (decode_status(&payload), decode_fields(&payload));
            }
            DATA => seen.body_bytes += payload.len(),
            other => panic!("a frame of type {other}: {method} {status}"),
        }
        if flags & END_STREAM != 0 {
            return seen;
        }
    }
}

/// Each status with each method, over each protocol, with and without TLS.
#[test]
fn a_refusal_before_the_gates_has_all_that_other_answers_have() {
    let setup = Setup::new();
    let log = setup.path("access.log").display().to_string();
    let (gateway, authority) = start_with_tls(setup.set_text("log.path", &log).set(
        "log.fields",
        r#"["request_id", "protocol", "tls", "response_bytes", "status", "outcome"]"#,
    ));
    let secure = gateway.https_address();
    let connect_tls = |alpn: &str| {
        let stream = TcpStream::connect(secure).unwrap();
        let all = rustls::ALL_VERSIONS;
        authority.try_tls_handshake(secure, "gate.test", all, &[alpn], stream).unwrap()
    };
    let outcomes = [(400, "bad_request"), (414, "uri_too_long"), (417, "expectation_failed")];
    let outcomes = outcomes.into_iter().chain([(431, "headers_too_large")]);
    let mut expected_lines: Vec<ExpectedLine> = Vec::new();
    let mut clients = (FrameClient::open(gateway.http), FrameClient::start(connect_tls("h2")));
    let mut stream = 1;
    for (status, outcome) in outcomes {
        let before =
            gateway.sum_of_samples("riskgate_requests_total", &[&format!("outcome=\"{outcome}\"")]);
        let first = expected_lines.len();
        for method in ["GET", "HEAD", "POST", "OPTIONS"] {
            for (protocol, is_tls) in ["HTTP/1.0", "HTTP/1.1", "HTTP/2"]
                .into_iter()
                .flat_map(|protocol| [(protocol, false), (protocol, true)])
            {
                // HTTP/1.0 has no expectations (RFC 9110 section 10.1.1).
                if (protocol, status) == ("HTTP/1.0", 417) {
                    continue;
                }
                let seen = match (protocol, is_tls) {
                    ("HTTP/2", false) => ask_http2(&mut clients.0, stream, status, method),
                    ("HTTP/2", true) => ask_http2(&mut clients.1, stream, status, method),
                    (_, false) => ask_http1(gateway.connect(), status, method, protocol),
                    (_, true) => {
                        let connection = Connection::from_stream(Box::new(connect_tls("http/1.1")));
                        ask_http1(connection, status, method, protocol)
                    }
                };
                let what = format!("{method} {protocol} TLS {is_tls} {status}: {seen:?}");
                assert_eq!(seen.status, status, "{what}");
                assert_eq!(seen.field(HSTS), is_tls.then_some("max-age=31536000"), "{what}");
                assert_eq!(seen.body_bytes == 0, method == "HEAD", "{what}");
                assert_ne!(seen.field("content-length"), Some("0"), "{what}");
                let id = seen.field("x-request-id").expect("an id").to_owned();
                let tls = is_tls.then_some("TLSv1.3");
                expected_lines.push((id, protocol, tls, seen.body_bytes, status, outcome));
            }
            stream += 2;
        }
        let counted = || {
            gateway.sum_of_samples("riskgate_requests_total", &[&format!("outcome=\"{outcome}\"")])
                - before
        };
        let asked = (expected_lines.len() - first) as f64;
        wait_until("all are counted", || counted() >= asked);
        assert_eq!(counted(), asked, "{outcome}");
    }
    assert_logged(&gateway, expected_lines);
}

/// The line of a refusal in the access log: request id, protocol, version of TLS, bytes of the
/// body, status, outcome.
type ExpectedLine = (String, &'static str, Option<&'static str>, usize, u16, &'static str);

fn assert_logged(gateway: &Gateway, expected_lines: Vec<ExpectedLine>) {
    let find = |id: &str| {
        gateway.read_access_log().into_iter().find(|line| line["request_id"].as_str() == Some(id))
    };
    for (id, protocol, tls, body_bytes, status, outcome) in expected_lines {
        wait_until("it is logged", || find(&id).is_some());
        let line = find(&id).unwrap();
        let logged = (&line["protocol"], &line["tls"], &line["response_bytes"]);
        assert_eq!(logged, (&json!(protocol), &json!(tls), &json!(body_bytes)), "{line}");
        assert_eq!(
            (&line["status"], &line["outcome"]),
            (&json!(status), &json!(outcome)),
            "{line}"
        );
    }
}

#[test]
fn a_real_client_gets_the_status_of_a_refused_head() {
    let (gateway, authority) = start_with_tls(Setup::new());
    let at = gateway.https_address();
    let long = format!("v1/usage?{}", "a".repeat(3_000));
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
fn the_redirect_listener_answers_logs_and_counts_as_the_others_do() {
    let redirect = free_address();
    let setup = Setup::new().set_text("listen.redirect", &redirect.to_string());
    let log = setup.path("access.log").display().to_string();
    let (gateway, _) = start_with_tls(setup.set_text("log.path", &log));
    let counted = |outcome| {
        gateway.sum_of_samples("riskgate_requests_total", &[&format!("outcome=\"{outcome}\"")])
    };
    let redirected = "redirected";
    let mut body =
        "POST /a HTTP/1.1\r\nHost: gate.test\r\nContent-Length: 99999\r\n\r\n".to_owned();
    body += &"b".repeat(99_999);
    for (method, status, outcome, bytes) in [
        ("HEAD", 308, redirected, "HEAD /a HTTP/1.1\r\nHost: gate.test\r\n\r\n"),
        ("GET", 308, redirected, "GET /a HTTP/1.1\r\nHost: gate.test:80\r\n\r\n"),
        ("GET", 308, redirected, "GET /a HTTP/1.0\r\nHost: gate.test\r\n\r\n"),
        ("POST", 308, redirected, &body),
        ("HEAD", 400, "bad_request", "HEAD /a HTTP/1.1\r\n\r\n"),
        ("GET", 400, "bad_request", "GET /a HTTP/1.1\r\nHost: a b\r\n\r\n"),
        ("GET", 308, redirected, "GET http://gate.test/a HTTP/1.1\r\nHost: gate.test\r\n\r\n"),
        ("GET", 400, "bad_request", "OPTIONS * HTTP/1.1\r\nHost: gate.test\r\n\r\n"),
        ("GET", 400, "bad_request", "\0\r\n\r\n"),
    ] {
        let before = counted(outcome);
        let mut connection = Connection::open(redirect);
        connection.send(bytes.as_bytes());
        let answer = connection.read_response_to(method).expect("an answer").expect(status);
        assert!(connection.read_to_end().is_empty(), "{method} {status}");
        assert_eq!(answer.body.is_empty(), method == "HEAD" || status == 308, "{bytes:?}");
        assert_eq!(answer.header(HSTS), None);
        let location = (status == 308)
            .then(|| format!("https://gate.test:{}/a", gateway.https_address().port()));
        assert_eq!(answer.header("Location"), location.as_deref());
        let id = answer.header("X-Request-Id").expect("an id").to_owned();
        let find = || gateway.read_access_log().into_iter().find(|line| line["request_id"] == *id);
        wait_until("it is logged", || find().is_some());
        let line = find().unwrap();
        assert_eq!(
            (line["status"].as_u64(), &line["outcome"]),
            (Some(status.into()), &outcome.into())
        );
        if status == 308 {
            let target = bytes.split(' ').nth(1).unwrap();
            assert_eq!(
                (&line["method"], &line["path"]),
                (&method.into(), &target.into()),
                "{line}"
            );
        }
        assert_eq!(counted(outcome), before + 1.0, "{outcome}");
    }
}

#[test]
fn the_redirect_listener_obeys_the_limits_and_reads_a_proxy_header() {
    let redirect = free_address();
    let setup = Setup::new().set_text("listen.redirect", &redirect.to_string());
    let (gateway, _) = start_with_tls(setup.set("listen.max_connections_per_address", "3"));
    let refused = || gateway.sum_of_samples("riskgate_connections_rejected_total", &[]);
    let connections = || gateway.sum_of_samples("riskgate_connections", &[]);
    wait_until("earlier connections are gone", || connections() == 0.0);
    let held: Vec<Connection> = (0..3).map(|_| Connection::open(redirect)).collect();
    wait_until("they count", || connections() >= 3.0);
    let mut fourth = Connection::open(redirect);
    assert!(fourth.read_to_end().is_empty());
    wait_until("the refusal is counted", || refused() >= 1.0);
    drop(held);
    wait_until("others are served again", || {
        let mut connection = Connection::open(redirect);
        connection.send(b"GET /a HTTP/1.1\r\nHost: gate.test\r\n\r\n");
        connection.read_response().is_some_and(|answer| answer.status == 308)
    });

    let redirect = free_address();
    let setup = Setup::new().set_text("listen.redirect", &redirect.to_string());
    let setup = setup.set("listen.proxy_protocol", "true");
    let setup = setup.set("listen.trusted_proxies", r#"["127.0.0.1"]"#);
    let log = setup.path("access.log").display().to_string();
    let (gateway, _) = start_with_tls(setup.set_text("log.path", &log));
    let mut connection = Connection::open(redirect);
    connection.send(b"PROXY TCP4 192.0.2.9 192.0.2.1 1 80\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.read_response().expect("an answer").expect(308);
    wait_until("it is logged", || !gateway.read_access_log().is_empty());
    assert_eq!(gateway.read_access_log()[0]["client"], "192.0.2.9");
    let mut connection = Connection::open(redirect);
    connection.send(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(connection.read_to_end().is_empty(), "a PROXY header is missing");
}
