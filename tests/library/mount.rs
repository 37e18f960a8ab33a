//! Runs the example `mount`: a Pingora proxy of its own that calls riskgate's gates.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::free_ports::free_address;

/// The running example, its address and key, and the request headers that its upstream received.
pub struct MountingProxy {
    process: Child,
    /// What the example has written to standard error so far, line by line.
    pub log_lines: Receiver<String>,
    pub address: SocketAddr,
    key: String,
    pub received_headers: Receiver<String>,
    _folder: tempfile::TempDir,
}

impl Drop for MountingProxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn example_binary_path() -> PathBuf {
    let bin = Path::new(env!("CARGO_BIN_EXE_riskgate"));
    bin.parent().unwrap().join("examples/mount")
}

fn read_lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            eprintln!("{line}");
            let _ = sender.send(line);
        }
    });
    receiver
}

pub fn create_key(config: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_riskgate"))
        .args(["keys", "create", "--account", "mounted", "--plan", "pro", "-c"])
        .arg(config)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn spawn_upstream(listener: TcpListener) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut header = String::new();
            while !header.ends_with("\r\n\r\n") {
                if reader.read_line(&mut header).unwrap_or(0) == 0 {
                    break;
                }
            }
            let _ = sender.send(header);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: secret/1\r\n\
                          X-Riskgate-Account: forged\r\nConnection: close\r\n\r\nhi";
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    receiver
}

fn start_mounting_proxy() -> MountingProxy {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream_address = upstream.local_addr().unwrap();
    start_mounting_proxy_for(upstream_address, spawn_upstream(upstream))
}

/// Starts the example in front of this upstream address.
fn start_mounting_proxy_for(
    upstream_address: SocketAddr,
    upstream: Receiver<String>,
) -> MountingProxy {
    start_mounting_proxy_with(upstream_address, upstream, "")
}

/// The same, with these sections in its config.
pub fn start_mounting_proxy_with(
    upstream_address: SocketAddr,
    upstream: Receiver<String>,
    sections: &str,
) -> MountingProxy {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("riskgate.toml");
    let store = folder.path().join("riskgate.db");
    let store = store.display();
    let text = format!("[store]\nurl = \"sqlite:{store}\"\n[log]\naccess = false\n{sections}");
    std::fs::write(&config, text).unwrap();
    let key = create_key(&config);
    let address = free_address();
    let mut process = Command::new(example_binary_path())
        .args([address.to_string(), upstream_address.to_string()])
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example: cargo test builds it, or cargo build --example mount");
    let log_lines = read_lines(process.stderr.take().unwrap());
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "the example does not listen");
        std::thread::yield_now();
    }
    MountingProxy { process, log_lines, address, key, received_headers: upstream, _folder: folder }
}

fn get_and_close(mounted: &MountingProxy, path: &str, key: &str) -> (String, String) {
    get_with_fields(mounted, path, key, "")
}

/// Sends a GET request with additional header fields; each is a line with its CRLF.
fn get_with_fields(
    mounted: &MountingProxy,
    path: &str,
    key: &str,
    fields: &str,
) -> (String, String) {
    let fields = format!("Connection: close\r\n{fields}");
    send_get(mounted, path, key, &fields)
}

fn send_get(mounted: &MountingProxy, path: &str, key: &str, fields: &str) -> (String, String) {
    let mut stream = TcpStream::connect(mounted.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Returns the values of a field in a header whose lines end with CRLF.
pub fn field_values<'h>(header: &'h str, name: &str) -> Vec<&'h str> {
    let fields = header.split("\r\n").filter_map(|line| line.split_once(": "));
    let named = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value).collect()
}

#[test]
fn behind_a_mounting_proxy_the_upstream_gets_identity_fields_only_from_riskgate() {
    let mounted = start_mounting_proxy();
    let forged = "X-Riskgate-Account: boss\r\nx-riskgate-plan: boss\r\nX_Riskgate_Key_Id: boss\r\n\
                  X-Forwarded-For: 6.6.6.6\r\nX-Request-Id: mine-1\r\nX-Anything: passes\r\n";
    let (head, body) = get_with_fields(&mounted, "/v1/check/a@b.com", &mounted.key, forged);
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "hi", "{head}");
    let seen = mounted.received_headers.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(field_values(&seen, "x-riskgate-account"), ["mounted"], "{seen}");
    assert_eq!(field_values(&seen, "x-riskgate-plan"), ["pro"], "{seen}");
    assert_eq!(field_values(&seen, "x-riskgate-key-id").len(), 1, "{seen}");
    assert_eq!(field_values(&seen, "x-forwarded-for"), ["127.0.0.1"], "{seen}");
    assert_eq!(field_values(&seen, "x-request-id"), ["mine-1"], "{seen}");
    assert_eq!(field_values(&seen, "x-anything"), ["passes"], "{seen}");
    assert!(!seen.contains("boss") && field_values(&seen, "authorization").is_empty(), "{seen}");
    // The response has the same fields as with `riskgate run`.
    assert_eq!(field_values(&head, "x-riskgate-source"), ["upstream"], "{head}");
    assert_eq!(field_values(&head, "x-request-id"), ["mine-1"], "{head}");
    assert_eq!(field_values(&head, "ratelimit").len(), 1, "{head}");
    assert!(
        field_values(&head, "server").is_empty()
            && field_values(&head, "x-riskgate-account").is_empty(),
        "{head}"
    );
}

#[test]
fn a_mounting_proxy_serves_a_request_with_any_connection_options() {
    let mounted = start_mounting_proxy();
    let field_names = (0..12).map(|at| format!("x-{at}, ")).collect::<String>();
    for options in
        ["a@b, close", "close, keep-alive; timeout=5", "close;, close", &(field_names + "close")]
    {
        let fields = format!("Connection: {options}\r\nX-1: hop-by-hop\r\n");
        let (head, body) = send_get(&mounted, "/v1/check/a@b.com", &mounted.key, &fields);
        assert!(head.starts_with("HTTP/1.1 200 ") && body == "hi", "{options}: {head}");
        let seen = mounted.received_headers.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(
            field_values(&seen, "x-1").is_empty(),
            options.contains("x-1,"),
            "{options}: {seen}"
        );
    }
}

#[test]
fn a_mounting_proxy_refunds_a_call_if_the_upstream_is_unreachable() {
    let mounted = start_mounting_proxy_for(free_address(), channel().1);
    for _ in 0..3 {
        let (head, body) = get_and_close(&mounted, "/v1/check/a@b.com", &mounted.key);
        assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
        assert_eq!(field_values(&head, "x-fail-open"), ["true"], "{head}");
        assert!(body.starts_with(r#"{"error":"upstream_unavailable""#), "{body}");
    }
    let (_, body) = get_and_close(&mounted, "/v1/usage", &mounted.key);
    assert!(body.starts_with(r#"{"plan":"pro","month_count":0,"#), "{body}");
}

#[test]
fn a_mounting_proxy_counts_a_call_that_the_upstream_did_not_answer_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mounted = start_mounting_proxy_for(silent.local_addr().unwrap(), channel().1);
    let (head, body) = get_and_close(&mounted, "/v1/check/a@b.com", &mounted.key);
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    assert_eq!(field_values(&head, "x-fail-open"), ["true"], "{head}");
    assert!(body.starts_with(r#"{"error":"upstream_timeout""#), "{body}");
    let (_, body) = get_and_close(&mounted, "/v1/usage", &mounted.key);
    assert!(body.starts_with(r#"{"plan":"pro","month_count":1,"#), "{body}");
}

#[test]
fn a_mounting_proxy_answers_verdicts_refuses_unknown_keys_and_forwards_checks() {
    let mounted = start_mounting_proxy();

    let (head, body) = get_and_close(&mounted, "/v1/public/domain/yopmail.com", &mounted.key);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(body.starts_with(r#"{"domain":"yopmail.com","risk_score":100,"#), "{body}");

    let (head, body) = get_and_close(&mounted, "/v1/check/a%40b.com", "rg_no_such_key_at_all");
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    assert!(body.starts_with(r#"{"error":"unauthorized""#), "{body}");

    // Servers read the body of a GET in different ways.
    let with_body = "Content-Length: 5\r\n\r\nhello";
    let (head, _) = get_with_fields(&mounted, "/v1/check/a@b.com", &mounted.key, with_body);
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");

    let (head, body) = get_and_close(&mounted, "/v1/check/a@b.com", &mounted.key);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(body.contains("hi"), "{body}");
    let seen = mounted.received_headers.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(seen.starts_with("GET /v1/check/a%40b.com HTTP/1.1\r\n"), "{seen}");
    assert!(seen.to_ascii_lowercase().contains("x-seen: 1\r\n"), "{seen}");
    assert!(!seen.contains(&mounted.key), "{seen}");
    // The refused request never reached the upstream server.
    assert!(mounted.received_headers.try_recv().is_err());

    let (_, body) = get_and_close(&mounted, "/v1/usage", &mounted.key);
    assert!(body.starts_with(r#"{"plan":"pro","month_count":2,"monthly_limit":10000,"#), "{body}");
}

#[test]
fn a_mounting_proxy_logs_a_failed_check_without_the_address() {
    let mounted = start_mounting_proxy_for(free_address(), channel().1);
    let path = "/v1/check/jane.doe%40yopmail.com?token=hunter22";
    let fields = "Connection: close\r\nX-Request-Id: failed-check\r\n";
    let (head, _) = send_get(&mounted, path, &mounted.key, fields);
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    let mut told = String::new();
    while !told.contains("failed-check") {
        told += &mounted.log_lines.recv_timeout(Duration::from_secs(10)).expect(&told);
    }
    // The line of the failure is the last one.
    told.extend(mounted.log_lines.recv_timeout(Duration::from_millis(200)));
    assert!(told.contains("ConnectRefused"), "{told}");
    for secret in ["jane", "hunter22", "yopmail", &*mounted.key] {
        assert!(!told.contains(secret), "{secret}: {told}");
    }
}
