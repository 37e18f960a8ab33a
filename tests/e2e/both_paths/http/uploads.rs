//! If riskgate refuses an upload, the client can read the response even while it still sends. No
//! client can hold a connection open by continuing to send.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::harness::{
    CertificateAuthority, Connection, Gateway, MockUpstream, Setup, TEST_TIMEOUT, free_address,
    request, response_bytes, wait_until,
};

const MEGABYTE: usize = 1_000_000;
pub const ROUTES: &str = "[[upstream.route]]\nprefix = \"/v1/signup\"\nmethods = [\"POST\"]\n";

/// Starts a gateway that accepts uploads with a key; nothing listens on its upstream address.
pub fn start_with_upstream_down(setup: Setup) -> (Gateway, String) {
    let setup =
        setup.append_toml(ROUTES).with_upstreams(&[free_address()]).set("listen.h2c", "true");
    let gateway = setup.set("plans.free", "1000000").start();
    let key = gateway.create_active_key("acme", &[]);
    (gateway, key)
}

/// The header of an upload.
fn upload_header(target: &str, version: &str, fields: &str) -> String {
    format!("POST {target} HTTP/{version}\r\nHost: gate.test\r\n{fields}\r\n")
}

/// The response to a client that sends everything before it reads, as most clients do.
fn write_then_read(mut stream: impl Read + Write, bytes: &[u8]) -> Result<String, String> {
    // The client sends in parts, as from a file: if riskgate closes after the first part, sending
    // the second part fails.
    for part in bytes.chunks(8_192) {
        stream.write_all(part).map_err(|error| format!("writing: {error}"))?;
    }
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        // TLS reports an end without its alert as an error; only the received bytes count.
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(format!("reading: {error}")),
    }
    String::from_utf8(response).map_err(|error| error.to_string())
}

fn connect_with_timeouts(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// Asserts that this is one complete response with this status and `Connection: close`.
fn assert_complete_and_closing(response: &Result<String, String>, status: u16, what: &str) {
    let response = response.as_ref().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {response:?}");
    let (header, body) = response.split_once("\r\n\r\n").expect(what);
    let header = header.to_ascii_lowercase();
    assert!(header.contains("\r\nconnection: close"), "{what}: {header}");
    let length = header.lines().find_map(|line| line.strip_prefix("content-length: "));
    assert_eq!(length, Some(body.len().to_string().as_str()), "{what}: {response}");
}

#[test]
fn forty_clients_that_send_a_megabyte_before_reading_all_get_their_404() {
    let (gateway, _) = start_with_upstream_down(Setup::new());
    let mut bytes = upload_header("/nowhere", "1.1", "Content-Length: 1000000\r\n").into_bytes();
    bytes.resize(bytes.len() + MEGABYTE, b'b');
    let begin = std::sync::Barrier::new(40);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..40)
            .map(|_| {
                scope.spawn(|| {
                    let stream = connect_with_timeouts(gateway.http);
                    begin.wait();
                    write_then_read(stream, &bytes)
                })
            })
            .collect();
        for client in clients {
            assert_complete_and_closing(&client.join().unwrap(), 404, "a client of forty");
        }
    });
    wait_until("no connection is left", || {
        gateway.sum_of_samples("riskgate_connections", &[]) == 0.0
    });
}

#[test]
fn every_refusal_of_an_upload_reaches_a_client_that_writes_first() {
    let (gateway, key) = start_with_upstream_down(Setup::new());
    let bound = gateway.create_active_key("bound", &["--origin", "https://app.example.com"]);
    let spent = gateway.create_active_key("spent", &[]);
    gateway.cli(&["accounts", "set", "spent", "--limit", "0"]).expect(0);
    wait_until("the limit is in effect", || gateway.get_domain("first.test", &spent).status == 429);
    let with = |key: &str| format!("Authorization: Bearer {key}\r\nContent-Length: 1000000\r\n");
    let long = "Content-Length: 1000000\r\n";
    let chunked = "Transfer-Encoding: chunked\r\nConnection: close\r\n";
    let chunks = |size: usize| {
        let chunk = format!("{size:x}\r\n{}\r\n", "c".repeat(size));
        (chunk.repeat(MEGABYTE / size) + "0\r\n\r\n").into_bytes()
    };
    let body = vec![b'b'; MEGABYTE];
    let foreign = format!("{}Origin: https://other.test\r\n", with(&bound));
    let cases: [(u16, String, &[u8]); 10] = [
        (404, upload_header("/nowhere", "1.1", long), &body),
        (404, upload_header("/nowhere", "1.0", long), &body),
        (401, upload_header("/v1/signup", "1.1", long), &body),
        (403, upload_header("/v1/signup", "1.1", &foreign), &body),
        (405, upload_header("/v1/usage", "1.1", long), &body),
        (429, upload_header("/v1/signup", "1.1", &with(&spent)), &body),
        // No upstream server accepts the connection: riskgate answers 500 while the body arrives.
        (500, upload_header("/v1/signup", "1.1", &with(&key)), &body),
        (
            413,
            upload_header("/v1/signup", "1.1", &with(&key).replace("1000000", "40000000")),
            &body,
        ),
        (401, upload_header("/v1/signup", "1.1", chunked), &chunks(16_384)),
        (404, upload_header("/nowhere", "1.1", chunked), &chunks(100)),
    ];
    std::thread::scope(|scope| {
        for (status, header, body) in &cases {
            for _ in 0..4 {
                scope.spawn(|| {
                    let bytes = [header.as_bytes(), body].concat();
                    let response = write_then_read(connect_with_timeouts(gateway.http), &bytes);
                    assert_complete_and_closing(&response, *status, header);
                });
            }
        }
    });
}

#[test]
fn a_refusal_reaches_a_client_over_tls_that_writes_first() {
    let setup = Setup::new();
    let authority = CertificateAuthority::new(setup.path("").as_path());
    let certificate = authority.issue_certificate("first", "DNS:gate.test");
    let (gateway, _) = start_with_upstream_down(setup.with_certificates(&[certificate]));
    let mut bytes = upload_header("/nowhere", "1.1", "Content-Length: 1000000\r\n").into_bytes();
    bytes.resize(bytes.len() + MEGABYTE, b'b');
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (at, all) = (gateway.https_address(), rustls::ALL_VERSIONS);
                let stream = TcpStream::connect(at).unwrap();
                let stream = authority.try_tls_handshake(at, "gate.test", all, &[], stream);
                assert_complete_and_closing(
                    &write_then_read(stream.unwrap(), &bytes),
                    404,
                    "over TLS",
                );
            });
        }
    });
}

#[test]
fn bytes_pipelined_after_connection_close_do_not_lose_the_response() {
    let (gateway, key) = start_with_upstream_down(Setup::new());
    let fields = format!("Authorization: Bearer {key}\r\nConnection: close\r\nAccept: a\r\n");
    for more in ["", "Keep-Alive: timeout=5\r\n"] {
        let first =
            format!("GET /v1/public/top-domains HTTP/1.1\r\nHost: gate.test\r\n{fields}{more}\r\n");
        let mut bytes = first.into_bytes();
        bytes.resize(bytes.len() + MEGABYTE, b'x');
        assert_complete_and_closing(
            &write_then_read(connect_with_timeouts(gateway.http), &bytes),
            200,
            more,
        );
    }
}

#[test]
fn a_refusal_comes_before_the_body_and_a_short_body_keeps_the_connection() {
    // The answer must not come only because riskgate gives up on the body.
    let (gateway, _) =
        start_with_upstream_down(Setup::new().set_text("listen.header_timeout", "1h"));
    let mut connection = gateway.connect();
    for length in [1, 1_000, 65_536] {
        let bytes = request("POST", "/nowhere").body(&"b".repeat(length)).to_bytes();
        let (header, body) = bytes.split_at(bytes.len() - length);
        connection.send(header);
        let answer = connection.read_response().expect("an answer before the body").expect(404);
        assert_eq!(answer.header("Connection"), Some("keep-alive"), "{length}");
        connection.send(body);
    }
    // The next bytes on this connection are a request, and no part of a body.
    connection.send_request(&request("GET", "/nowhere")).expect(404);
    let bytes = request("POST", "/nowhere").body(&"b".repeat(65_537)).to_bytes();
    connection.send(&bytes[..bytes.len() - 65_537]);
    let answer = connection.read_response().expect("an answer before the body").expect(404);
    assert_eq!(answer.header("Connection"), Some("close"));
    assert!(connection.ends_without_more_bytes());
}

#[test]
fn a_client_cannot_hold_a_connection_by_sending_after_a_refusal() {
    let (gateway, _) =
        start_with_upstream_down(Setup::new().set_text("listen.header_timeout", "1s"));
    let header = upload_header("/nowhere", "1.1", "Content-Length: 1000000\r\n");
    // One client stops sending, one trickles, and one sends a body without an end.
    let mut silent = connect_with_timeouts(gateway.http);
    silent.write_all(header.as_bytes()).unwrap();
    let mut trickles = connect_with_timeouts(gateway.http);
    trickles.write_all(header.as_bytes()).unwrap();
    let flood = std::thread::spawn({
        let (address, header) = (gateway.http, header.clone());
        move || {
            let mut stream = connect_with_timeouts(address);
            stream.write_all(header.as_bytes()).unwrap();
            let (mut sent, block) = (0, vec![b'b'; 65_536]);
            while stream.write_all(&block).is_ok() {
                sent += block.len();
            }
            sent
        }
    });
    let begun = Instant::now();
    wait_until("riskgate closes all connections", || {
        let _ = trickles.write_all(b"b");
        std::thread::sleep(Duration::from_millis(50));
        gateway.sum_of_samples("riskgate_connections", &[]) == 0.0
    });
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    // The limit, plus the buffers of two kernels.
    let sent = flood.join().unwrap();
    assert!(sent < 40_000_000, "{sent} bytes were taken");
    let mut response = String::new();
    silent.read_to_string(&mut response).unwrap();
    assert_complete_and_closing(&Ok(response), 404, "a client that sends nothing more");
}

/// A client that has received its refusal, and has a short body left to send.
fn connect_and_get_refused(gateway: &Gateway) -> TcpStream {
    let mut client = connect_with_timeouts(gateway.http);
    client
        .write_all(upload_header("/nowhere", "1.1", "Content-Length: 60000\r\n").as_bytes())
        .unwrap();
    let mut status = [0; 12];
    client.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 404");
    client
}

/// Sends byte by byte until riskgate closes the connection, or the process ends. Returns the time.
fn time_until_closed(mut client: TcpStream, mut is_closed: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    wait_until("riskgate closes the connection", || {
        let _ = client.write_all(b"b");
        std::thread::sleep(Duration::from_millis(50));
        is_closed()
    });
    begun.elapsed()
}

#[test]
fn after_a_refusal_a_trickled_body_holds_its_connection_only_for_header_timeout() {
    let (gateway, _) =
        start_with_upstream_down(Setup::new().set_text("listen.header_timeout", "4s"));
    let client = connect_and_get_refused(&gateway);
    let took =
        time_until_closed(client, || gateway.sum_of_samples("riskgate_connections", &[]) == 0.0);
    assert!(took < Duration::from_millis(7_500), "{took:?}");
}

#[test]
fn after_a_refusal_a_trickled_body_does_not_delay_the_shutdown() {
    let (mut gateway, _) =
        start_with_upstream_down(Setup::new().set_text("listen.header_timeout", "15s"));
    let client = connect_and_get_refused(&gateway);
    gateway.send_signal("TERM");
    let took = time_until_closed(client, || gateway.exit_status().is_some());
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn a_client_that_closes_its_sending_side_within_a_refused_body_gets_the_response() {
    let (gateway, _) = start_with_upstream_down(Setup::new());
    let mut stream = connect_with_timeouts(gateway.http);
    let bytes = request("POST", "/nowhere").body(&"b".repeat(100_000)).to_bytes();
    stream.write_all(&bytes[..50_000]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert_complete_and_closing(&Ok(response), 404, "half of a body and an end");
}

#[test]
fn curl_reads_the_response_to_a_refused_upload_over_http_1_1_and_http_2() {
    let (gateway, _) = start_with_upstream_down(Setup::new());
    let file = gateway.path("upload");
    std::fs::write(&file, vec![b'b'; MEGABYTE]).unwrap();
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let mut command = std::process::Command::new("curl");
        command.args(["-s", "--max-time", "20", version, "-w", " %{http_code}", "--data-binary"]);
        let at = format!("@{}", file.display());
        let ran =
            crate::harness::run_command(command.arg(at).arg(format!("http://{}/x", gateway.http)));
        assert_eq!(ran.exit_code, 0, "{version}: {ran:?}");
        assert!(ran.stdout.ends_with("} 404"), "{version}: {ran:?}");
    }
}

#[test]
fn the_client_gets_the_upstreams_early_refusal_of_an_upload() {
    let early = MockUpstream::answering_early(413, "too large for me");
    let setup = Setup::new().append_toml(ROUTES).with_upstreams(&[early.address]);
    let gateway = setup.start();
    let key = gateway.create_active_key("acme", &[]);
    // Because of `Connection: close`, riskgate closes the connection after the response, even if
    // the client has sent its whole body by then.
    let fields =
        format!("Authorization: Bearer {key}\r\nContent-Length: 1000000\r\nConnection: close\r\n");
    let mut bytes = upload_header("/v1/signup", "1.1", &fields).into_bytes();
    bytes.resize(bytes.len() + MEGABYTE, b'b');
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let response = write_then_read(connect_with_timeouts(gateway.http), &bytes);
                assert_complete_and_closing(&response, 413, "refused by the server");
            });
        }
    });
}

/// Starts a server to which the kernel sends a body of 60,000 bytes only in parts. The server reads
/// the header of a request, sends `answer`, and then does with the connection what `after` does.
fn start_early_server(answer: Vec<u8>, after: fn(TcpStream)) -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    // With the long segments of the loopback interface, the kernel would take the whole body.
    socket.set_tcp_mss(1_400).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(16).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if client.read_exact(&mut byte).is_err() {
                        return;
                    }
                    head.push(byte[0]);
                }
                client.write_all(&answer).unwrap();
                after(client);
            });
        }
    });
    address
}

#[test]
fn a_short_body_that_its_server_does_not_want_gets_the_servers_answer() {
    let refusal = response_bytes(413, "", "too large for me");
    let reset: fn(TcpStream) = |client| {
        std::thread::sleep(Duration::from_millis(300));
        drop(client);
    };
    let read_nothing: fn(TcpStream) = |client| {
        std::thread::sleep(Duration::from_secs(20));
        drop(client);
    };
    let read_all: fn(TcpStream) = |mut client| {
        std::thread::sleep(Duration::from_millis(300));
        let mut body = vec![0; 60_000];
        client.read_exact(&mut body).unwrap();
        client.write_all(&body).unwrap();
    };
    let head = b"HTTP/1.1 201 Created\r\nContent-Length: 60000\r\n\r\n".to_vec();
    for (answer, after, status, body) in [
        (refusal.clone(), reset, 413, "too large for me".to_owned()),
        (refusal, read_nothing, 413, "too large for me".to_owned()),
        (head, read_all, 201, "b".repeat(60_000)),
    ] {
        let server = start_early_server(answer, after);
        let gateway = Setup::new().append_toml(ROUTES).with_upstreams(&[server]).start();
        let key = gateway.create_active_key("acme", &[]);
        let post = request("POST", "/v1/signup").key(&key).body(&"b".repeat(60_000));
        let begun = Instant::now();
        let answered = gateway.send_request(&post).expect(status);
        assert_eq!(answered.text(), body);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(gateway.get_month_count(&key), 1, "the server has answered");
    }
}

#[test]
fn a_connection_stays_usable_after_refused_short_uploads() {
    let (gateway, _) = start_with_upstream_down(Setup::new());
    let mut connection: Connection = gateway.connect();
    for _ in 0..3 {
        let answer =
            connection.send_request(&request("POST", "/nowhere").body("short")).expect(404);
        assert_eq!(answer.header("Connection"), Some("keep-alive"));
    }
}
