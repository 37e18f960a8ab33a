//! Bodies of requests for a server: with a length, in chunks, and over HTTP/2 without a length.
//! Short, long, slow and too long ones.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::http2_frames::{
    DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, WINDOW_UPDATE, decode_status,
    encode_frame, encode_request_fields,
};
use crate::harness::{
    Connection, Gateway, MockUpstream, Setup, is_fast_path_the_default, request, wait_until,
};

const ROUTES: &str =
    "[[upstream.route]]\nprefix = \"/v1/signup\"\nmethods = [\"POST\", \"DELETE\"]\n";

fn start(setup: Setup, upstream: &MockUpstream) -> (Gateway, String) {
    let setup = setup.append_toml(ROUTES).with_upstreams(&[upstream.address]);
    let gateway = setup.set("listen.h2c", "true").start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

/// Lets curl send a body from its standard input, so that curl knows no length.
fn send_with_curl(gateway: &Gateway, key: &str, more: &[&str], body: &[u8]) -> String {
    let mut command = Command::new("curl");
    command.args(["-s", "--max-time", "30", "-X", "POST", "-T", "-", "-w", " %{http_code}"]);
    command.args(["-H", &format!("Authorization: Bearer {key}")]).args(more);
    command.arg(format!("http://{}/v1/signup", gateway.http));
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut curl = piped.spawn().unwrap();
    let mut input = curl.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(body));
        String::from_utf8(curl.wait_with_output().unwrap().stdout).unwrap()
    })
}

#[test]
fn a_body_without_a_length_arrives_as_it_was_sent() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start(Setup::new(), &upstream);
    for version in [
        &["--http1.1"][..],
        &["--http1.1", "-H", "Expect: 100-continue"],
        &["--http2-prior-knowledge"],
    ] {
        for length in [0, 1, 5, 65_535, 65_536, 65_537, 100_000, 3_000_000] {
            let body = pattern(length);
            let answer = send_with_curl(&gateway, &key, version, &body);
            assert_eq!(answer, "{\"checked\":true} 200", "{version:?} {length}");
            let seen = upstream.last_request();
            assert!(seen.body == body, "{version:?} {length}: {} bytes", seen.body.len());
            // Over HTTP/2 without the fast path, riskgate can't tell beforehand whether the next
            // frame makes the body longer than 64 KiB.
            let is_near_limit =
                version[0] != "--http1.1" && length > 48 * 1024 && !is_fast_path_the_default();
            let expected: &[String] = match length {
                ..=65_536 if !is_near_limit => &[length.to_string()],
                _ => &[],
            };
            assert_eq!(seen.header_values("Content-Length"), expected, "{version:?} {length}");
            assert!(seen.header_values("Expect").is_empty());
        }
    }
    assert_eq!(gateway.get_month_count(&key), 24);
    assert_eq!(upstream.request_count(), 24, "none was sent twice");
}

#[test]
fn every_other_method_of_a_route_may_have_a_body() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start(Setup::new(), &upstream);
    let delete = request("DELETE", "/v1/signup").key(&key);
    gateway.send_request(&delete.clone().body("why")).expect(200);
    assert_eq!(upstream.last_request().body, b"why");
    gateway.send_request(&delete).expect(200);
    assert!(upstream.last_request().body.is_empty());
}

#[test]
fn a_client_that_may_not_post_learns_nothing_of_the_limit_of_bodies() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start(Setup::new().set("listen.max_body_bytes", "1000"), &upstream);
    let length = ("content-length", "1001");
    for (status, path, key) in [
        (404, "/nowhere", &*key),
        (401, "/v1/signup", "rg_nobody"),
        (405, "/v1/usage", &key),
        (413, "/v1/signup", &key),
    ] {
        let mut client = gateway.connect();
        let fields = format!("Authorization: Bearer {key}\r\nContent-Length: 1001\r\n");
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
        let response = client.read_response().expect("an answer").expect(status);
        assert_eq!(response.header("Connection"), Some("close"), "{path}");
        let mut frames = FrameClient::open(gateway.http);
        let block = encode_request_fields("POST", path, key, &[length]);
        assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, 1, &block)));
        assert_eq!(frames.read_status(1), status, "{path} over HTTP/2");
    }
    assert_eq!((gateway.get_month_count(&key), upstream.request_count()), (0, 0));
}

#[test]
fn a_body_over_the_limit_gets_413_and_is_not_counted() {
    let upstream = MockUpstream::start();
    for limit in [1_000, 200_000] {
        let setup = Setup::new().set("listen.max_body_bytes", &limit.to_string());
        let (gateway, key) = start(setup, &upstream);
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let at_limit = send_with_curl(&gateway, &key, &[version], &pattern(limit));
            assert!(at_limit.ends_with(" 200"), "{version} {limit}: {at_limit}");
            let before = upstream.request_count();
            let above = send_with_curl(&gateway, &key, &[version], &pattern(limit + 1));
            assert!(above.ends_with(" 413"), "{version} {limit}: {above}");
            assert!(above.contains("content_too_large"), "{above}");
            assert_eq!(upstream.request_count(), before, "the server got no whole request");
        }
        // Chunks that arrive with the header.
        let mut client = gateway.connect();
        let fields = format!("Authorization: Bearer {key}\r\nTransfer-Encoding: chunked\r\n");
        let head = format!("POST /v1/signup HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", limit + 1, "b".repeat(limit + 1));
        client.send((head + &chunk).as_bytes());
        client.read_response().expect("an answer").expect(413);
        assert_eq!(gateway.get_month_count(&key), 2);
        let is_413 = |line: &serde_json::Value| line["status"] == 413;
        let lines = || gateway.read_access_log().into_iter().filter(is_413).collect::<Vec<_>>();
        wait_until("the refusals are logged", || lines().len() == 3);
        for line in lines() {
            let logged = (line["method"].as_str(), line["path"].as_str());
            assert_eq!(logged, (Some("POST"), Some("/v1/signup")), "{line}");
        }
    }
}

#[test]
fn a_slow_body_gets_408_and_is_not_counted() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().set_text("listen.body_timeout", "1s");
    let (gateway, key) = start(setup, &upstream);
    let head = |framing: &str| {
        format!(
            "POST /v1/signup HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n{framing}\r\n"
        )
    };
    for (framing, start) in [
        ("Content-Length: 10\r\n", b"hello".to_vec()),
        ("Transfer-Encoding: chunked\r\n", b"5\r\nhel".to_vec()),
        ("Content-Length: 100000\r\n", vec![b'b'; 80_000]),
        ("Transfer-Encoding: chunked\r\n", [&b"14000\r\n"[..], &[b'b'; 0x13000]].concat()),
    ] {
        let begun = Instant::now();
        let mut client = gateway.connect();
        client.send(head(framing).as_bytes());
        client.send(&start);
        let answer = client.read_response().expect("an answer").expect(408);
        assert!(answer.text().contains("request_timeout"), "{}", answer.text());
        assert!(client.ends_without_more_bytes(), "{framing}");
        assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    }
    // Over HTTP/2, only the stream ends.
    let mut frames = FrameClient::open(gateway.http);
    let block = encode_request_fields("POST", "/v1/signup", &key, &[]);
    for stream in [1, 3] {
        assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, stream, &block)));
    }
    assert!(frames.try_send(&encode_frame(DATA, 0, 1, b"hello")));
    assert!(frames.try_send(&encode_frame(DATA, END_STREAM, 3, b"whole")));
    assert_eq!(frames.read_status(3), 200);
    assert_eq!(frames.read_status(1), 408);
    let block = encode_request_fields("POST", "/v1/signup", &key, &[]);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS | END_STREAM, 5, &block)));
    assert_eq!(frames.read_status(5), 200);
    assert_eq!(gateway.get_month_count(&key), 2);
}

#[test]
fn the_rest_of_a_body_that_is_refused_is_never_read_as_a_request() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().set("listen.max_held_bytes", "1048576");
    let (gateway, key) = start(setup, &upstream);
    let open = |body: &[u8]| {
        let mut connection = gateway.connect();
        let fields = format!("Authorization: Bearer {key}\r\nContent-Length: 60001");
        connection
            .send(format!("POST /v1/signup HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n").as_bytes());
        connection.send(body);
        connection
    };
    let _first = open(&[b'b'; 60_000]);
    wait_until("the first body has arrived", || {
        gateway.sum_of_samples("riskgate_held_body_bytes", &[]) >= 60_000.0
    });
    let hidden = format!(
        "POST /v1/hidden HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let mut body = hidden.into_bytes();
    body.resize(9_000, b'b');
    let mut second = open(&body);
    let refused = second.read_response().expect("an answer").expect(500);
    assert_eq!(refused.json()["error"], "internal_error");
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(second.read_response().is_none(), "the connection is closed");
    assert_eq!(upstream.request_count(), 0);
}

#[test]
fn slow_bodies_of_one_client_take_its_share_and_no_more() {
    let upstream = MockUpstream::start();
    let setup =
        Setup::new().set("listen.max_held_bytes", "1048576").set("upstream.max_in_flight", "1");
    let (gateway, key) = start(setup, &upstream);
    let open = |client: &str| {
        let client: IpAddr = client.parse().unwrap();
        let mut connection = Connection::open_from(client, gateway.http);
        let fields = format!("Authorization: Bearer {key}\r\nContent-Length: 60001");
        connection
            .send(format!("POST /v1/signup HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n").as_bytes());
        connection.send(&[b'b'; 60_000]);
        connection
    };
    // One client may use 65,536 bytes: enough for one of these bodies.
    let mut first = open("127.0.0.2");
    wait_until("the first body has arrived", || {
        gateway.sum_of_samples("riskgate_held_body_bytes", &[]) >= 60_000.0
    });
    let refused = open("127.0.0.2").read_response().expect("an answer").expect(500);
    assert_eq!(refused.json()["error"], "internal_error");
    // No exchange is under way, and other clients wait for nobody.
    let mut other = open("127.0.0.3");
    other.send(b"b");
    other.read_response().unwrap().expect(200);
    let wait_until_served = || {
        wait_until("the exchange is over", || {
            gateway.sum_of_samples("riskgate_upstream_exchanges_in_flight", &[]) == 0.0
        });
    };
    wait_until_served();
    let whole = request("POST", "/v1/signup").key(&key).body(&"b".repeat(60_000));
    gateway.send_request(&whole).expect(200);
    wait_until_served();
    first.send(b"b");
    first.read_response().unwrap().expect(200);
    assert_eq!(gateway.get_month_count(&key), 3);
}

#[test]
fn requests_over_http2_that_wait_for_their_bodies_take_memory_too() {
    let upstream = MockUpstream::start();
    let setup = Setup::new().set("listen.max_held_bytes", "3145728");
    let (gateway, key) = start(setup, &upstream);
    let mut frames = FrameClient::open(gateway.http);
    // One client may use 196,608 bytes.
    let (count, bytes_of_each) =
        if is_fast_path_the_default() { (15, 12_288) } else { (5, 36_864) };
    let block = encode_request_fields("POST", "/v1/signup", &key, &[]);
    for number in 0..count {
        assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, 2 * number + 1, &block)));
    }
    wait_until("all requests wait", || {
        gateway.sum_of_samples("riskgate_held_body_bytes", &[]) > f64::from(count * bytes_of_each)
    });
    let (refused, last) = (2 * count + 1, 2 * count + 3);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, refused, &block)));
    assert_eq!(frames.read_status(refused), 500);
    assert!(frames.try_send(&encode_frame(DATA, END_STREAM, 1, b"whole")));
    assert_eq!(frames.read_status(1), 200);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, last, &block)));
    assert!(frames.try_send(&encode_frame(DATA, END_STREAM, last, b"whole")));
    assert_eq!(frames.read_status(last), 200);
}

#[test]
fn posts_over_http2_that_riskgate_answers_itself_take_memory_while_they_wait() {
    for path in ["/v1/assess", "/v1/public/domains"] {
        let setup = Setup::new().set("listen.max_held_bytes", "3145728");
        let (gateway, key) = start(setup, &MockUpstream::start());
        // riskgate waits two seconds for a body. If the machine is too busy, the first post is
        // answered before the last one, and the test tries again.
        let mut first_answers = (0..5).map(|_| send_waiting_posts(&gateway, path, &key));
        let first_answer = first_answers.find(|(stream, _)| *stream == LAST_POST);
        assert_eq!(first_answer, Some((LAST_POST, 500)), "{path}");
        wait_until("their memory is free", || {
            gateway.sum_of_samples("riskgate_held_body_bytes", &[]) == 0.0
        });
    }
}

/// The stream of the post for which a client of [`send_waiting_posts`] has no memory left.
const LAST_POST: u32 = 11;

/// Sends headers of posts without their bodies: as many as the client has memory for, and one more.
/// Returns the stream that is answered first, and the status.
fn send_waiting_posts(gateway: &Gateway, path: &str, key: &str) -> (u32, u16) {
    let held_bytes = || gateway.sum_of_samples("riskgate_held_body_bytes", &[]);
    wait_until("the memory of earlier posts is free", || held_bytes() == 0.0);
    let mut frames = FrameClient::open(gateway.http);
    let block = encode_request_fields("POST", path, key, &[]);
    for stream in (1..LAST_POST).step_by(2) {
        assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, stream, &block)));
    }
    wait_until("all requests wait", || held_bytes() > 5.0 * 36_864.0);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, LAST_POST, &block)));
    loop {
        let (kind, _, stream, payload) = frames.read_frame().expect("a response");
        if kind == HEADERS {
            return (stream, decode_status(&payload));
        }
    }
}

/// The exchanges that are under way.
fn count_exchanges(gateway: &Gateway) -> f64 {
    gateway.sum_of_samples("riskgate_upstream_exchanges_in_flight", &[])
}

/// Sends the header of a body of 100,000 bytes and its first 70,000, from this address.
fn begin_upload(gateway: &Gateway, key: &str, client: &str) -> Connection {
    let client: IpAddr = client.parse().unwrap();
    let mut connection = Connection::open_from(client, gateway.http);
    let fields = format!("Authorization: Bearer {key}\r\nContent-Length: 100000");
    connection.send(format!("POST /v1/signup HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n").as_bytes());
    connection.send(&[b'b'; 70_000]);
    connection
}

#[test]
fn uploads_take_no_place_of_other_requests_and_one_client_has_a_share() {
    let upstream = MockUpstream::start();
    // 10 places for others, and 8 for uploads.
    let setup = Setup::new().set("upstream.max_in_flight", "10");
    let setup = setup.set("upstream.max_in_flight_per_address", "10");
    let (gateway, key) = start(setup, &upstream);
    let mut uploads: Vec<Connection> =
        (0..8).map(|_| begin_upload(&gateway, &key, "127.0.0.2")).collect();
    wait_until("all uploads are under way", || count_exchanges(&gateway) == 8.0);
    let mut above = begin_upload(&gateway, &key, "127.0.0.3");
    let refused = above.read_response().expect("an answer").expect(500);
    assert_eq!(refused.json()["error"], "upstream_unavailable");
    for body in ["", "short"] {
        let post = request("POST", "/v1/signup").key(&key).body(body);
        gateway.send_request(&post).expect(200);
    }
    for upload in &mut uploads {
        upload.send(&[b'b'; 30_000]);
        upload.read_response().expect("an answer").expect(200);
    }
    wait_until("no exchange is under way", || count_exchanges(&gateway) == 0.0);
    assert_eq!(gateway.get_month_count(&key), 10);
}

#[test]
fn an_upload_over_http2_that_stalls_gets_408() {
    let upstream = MockUpstream::start();
    let (gateway, key) = start(Setup::new().set_text("listen.body_timeout", "1s"), &upstream);
    let mut frames = FrameClient::open(gateway.http);
    let block = encode_request_fields("POST", "/v1/signup", &key, &[("content-length", "100000")]);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, 1, &block)));
    // The client may send 65,535 bytes before riskgate takes some.
    for _ in 0..4 {
        assert!(frames.try_send(&encode_frame(DATA, 0, 1, &[b'b'; 16_000])));
    }
    assert_eq!(frames.read_status(1), 408);
    wait_until("no exchange is under way", || count_exchanges(&gateway) == 0.0);
    assert_eq!(gateway.get_month_count(&key), 0);
}

/// Starts a server that accepts connections and reads nothing.
fn start_server_that_reads_nothing() -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let open: Vec<_> = server.incoming().map(Result::unwrap).collect();
        drop(open);
    });
    address
}

#[test]
fn an_upload_over_http2_that_its_server_does_not_read_holds_up_no_other() {
    let setup = Setup::new().append_toml(ROUTES).set("listen.h2c", "true");
    let gateway = setup.with_upstreams(&[start_server_that_reads_nothing()]).start();
    let key = gateway.create_active_key("acme", &[]);
    let mut frames = FrameClient::open(gateway.http);
    let fields = [("content-length", "30000000")];
    let block = encode_request_fields("POST", "/v1/signup", &key, &fields);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, 1, &block)));
    // A stream has this window at first, and so has a connection.
    let (mut of_stream, mut of_connection) = (65_535, 65_535);
    frames.stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    loop {
        let length = 16_000.min(of_stream).min(of_connection);
        if length > 0 {
            assert!(frames.try_send(&encode_frame(DATA, 0, 1, &vec![b'b'; length])));
            (of_stream, of_connection) = (of_stream - length, of_connection - length);
            continue;
        }
        let Some((kind, _, stream, payload)) = frames.read_frame() else { break };
        if kind == WINDOW_UPDATE {
            let increment = u32::from_be_bytes(payload[..].try_into().unwrap()) as usize;
            *if stream == 0 { &mut of_connection } else { &mut of_stream } += increment;
        }
    }
    assert_eq!(of_stream, 0, "the server takes no more");
    assert!(of_connection >= 65_535, "another stream may send {of_connection} bytes");
    let body = br#"{"domains":["a.com"]}"#;
    let block = encode_request_fields("POST", "/v1/public/domains", &key, &[]);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, 3, &block)));
    assert!(frames.try_send(&encode_frame(DATA, END_STREAM, 3, body)));
    assert_eq!(frames.read_status(3), 200);
}

/// The client sends as much as the gateway takes.
#[test]
fn an_upload_to_a_server_that_stops_reading_is_ended() {
    let address = start_server_that_reads_nothing();
    let route = format!("{ROUTES}deadline = \"1s\"\n");
    let setup = Setup::new().append_toml(&route).with_upstreams(&[address]);
    let gateway = setup.set("listen.h2c", "true").start();
    let key = gateway.create_active_key("acme", &[]);
    let fields = format!("Authorization: Bearer {key}\r\nContent-Length: 30000000");
    let head = format!("POST /v1/signup HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    let mut client = std::net::TcpStream::connect(gateway.http).unwrap();
    client.set_read_timeout(Some(crate::harness::TEST_TIMEOUT)).unwrap();
    client.write_all(head.as_bytes()).unwrap();
    let mut sender = client.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let part = vec![b'b'; 1 << 20];
        while sender.write_all(&part).is_ok() {}
    });
    let mut answer = [0; 4096];
    let length = std::io::Read::read(&mut client, &mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("upstream_timeout"), "{answer}");
    // The gateway may have closed the connection already.
    let _ = client.shutdown(std::net::Shutdown::Both);
    sending.join().unwrap();
    wait_until("no exchange is under way", || count_exchanges(&gateway) == 0.0);
}

/// Starts a server that answers each request at its first bytes, and keeps the connection open.
fn start_server_that_answers_first(response: Vec<u8>) -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            // Health checks connect and send nothing.
            let mut seen = [0; 4096];
            if std::io::Read::read(&mut stream, &mut seen).is_ok_and(|read| read > 0) {
                // The gateway may close the connection before it has read everything.
                let _ = stream.write_all(&response);
                open.push(stream);
            }
        }
    });
    address
}

/// Starts a gateway in front of a server that answers an upload over HTTP/2 at once, and stalls in
/// the upload. Checks the status, then reads nothing until the exchange has ended, and waits for a
/// line in the access log with this status and outcome.
#[track_caller]
fn assert_stalled_upload_is_logged(
    response: Vec<u8>,
    status: u16,
    outcome: &str,
) -> (Gateway, FrameClient) {
    let address = start_server_that_answers_first(response);
    let setup = Setup::new().append_toml(ROUTES).with_upstreams(&[address]);
    let setup = setup.set("listen.h2c", "true").set_text("listen.body_timeout", "1s");
    let log = setup.path("access.log");
    let gateway = setup.set_text("log.path", &log.display().to_string()).start();
    let key = gateway.create_active_key("acme", &[]);
    let mut frames = FrameClient::open(gateway.http);
    let block = encode_request_fields("POST", "/v1/signup", &key, &[("content-length", "1000000")]);
    assert!(frames.try_send(&encode_frame(HEADERS, END_HEADERS, 1, &block)));
    assert_eq!(frames.read_status(1), status);
    wait_until("no exchange is under way", || count_exchanges(&gateway) == 0.0);
    let mut lines = Vec::new();
    wait_until("the request is logged", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        lines = text.lines().filter(|it| it.contains("\"POST\"")).map(str::to_owned).collect();
        !lines.is_empty()
    });
    let expected = format!("\"status\":{status},\"outcome\":{outcome:?}");
    assert!(lines.len() == 1 && lines[0].contains(&expected), "{lines:?}");
    (gateway, frames)
}

/// A server may refuse an upload without reading it, and keep the connection open.
#[test]
fn an_upload_over_http2_that_stalls_after_its_answer_is_ended() {
    let response = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno".to_vec();
    let (_gateway, mut frames) = assert_stalled_upload_is_logged(response, 404, "upstream_4xx");
    assert_eq!(frames.read_status(1), 0, "the stream is reset");
}

/// The client reads the header alone, so most of the body stays unsent.
#[test]
fn a_response_that_a_stalled_upload_truncates_is_logged_as_aborted() {
    for length in [100_000, 4_000_000] {
        let mut response =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        response.resize(response.len() + length, b'b');
        assert_stalled_upload_is_logged(response, 200, "aborted");
    }
}

#[test]
fn a_key_is_asked_for_before_the_body() {
    let upstream = MockUpstream::start();
    let (gateway, _) = start(Setup::new(), &upstream);
    for framing in ["Content-Length: 5", "Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let mut client = gateway.connect();
        client.send(format!("POST /v1/signup HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n").as_bytes());
        client.read_response().expect("an answer without a body").expect(401);
    }
}
