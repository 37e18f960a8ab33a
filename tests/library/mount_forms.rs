//! A mounted gate screens forms, and the server gets the body as the client sent it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::mount::{MountingProxy, start_mounting_proxy_with};

const FORM: &str = "application/x-www-form-urlencoded";
const ROUTES: &str = "
[[upstream.route]]
prefix = \"/\"
key = false

[upstream.route.screen]
fields = [\"email\"]
paths = [\"/signup\"]
mode = \"block\"
";

/// A server that reads whole requests. Sends their headers and bodies, with an empty line between.
fn spawn_reading_upstream() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || answer_one_request(stream, &sender));
        }
    });
    (address, receiver)
}

fn answer_one_request(stream: TcpStream, sender: &std::sync::mpsc::Sender<String>) {
    let mut reader = BufReader::new(stream);
    let mut header = String::new();
    while !header.ends_with("\r\n\r\n") {
        if reader.read_line(&mut header).unwrap_or(0) == 0 {
            return;
        }
    }
    let lower = header.to_ascii_lowercase();
    let mut body = Vec::new();
    if let Some((_, rest)) = lower.split_once("content-length: ") {
        body.resize(rest.split("\r\n").next().unwrap().parse().unwrap(), 0);
        reader.read_exact(&mut body).unwrap();
    } else if lower.contains("transfer-encoding: chunked") {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
            let mut chunk = vec![0; length + 2];
            reader.read_exact(&mut chunk).unwrap();
            body.extend_from_slice(&chunk[..length]);
            if length == 0 {
                break;
            }
        }
    }
    sender.send(format!("{header}{}", String::from_utf8(body).unwrap())).unwrap();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
}

/// How the client sends a body.
#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    /// In chunks of this many bytes, each in a write of its own.
    Chunks(usize),
}

/// Posts a form, and returns the header of the answer.
fn post(mounted: &MountingProxy, path: &str, body: &str, framing: Framing) -> String {
    let mut stream = TcpStream::connect(mounted.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: {FORM}\r\n");
    match framing {
        Framing::Length => {
            let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
        Framing::Chunks(length) => {
            stream
                .write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes())
                .unwrap();
            for part in body.as_bytes().chunks(length) {
                let part = std::str::from_utf8(part).unwrap();
                let chunk = format!("{:x}\r\n{part}\r\n", part.len());
                stream.write_all(chunk.as_bytes()).unwrap();
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
        }
    }
    let (mut answer, mut byte) = (String::new(), [0]);
    while !answer.ends_with("\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        answer.push(char::from(byte[0]));
    }
    answer
}

#[test]
fn a_mounted_gate_screens_forms_of_any_length_and_framing() {
    let (address, requests) = spawn_reading_upstream();
    let mounted = start_mounting_proxy_with(address, requests, ROUTES);
    let padding = "y".repeat(200_000);
    for framing in [Framing::Length, Framing::Chunks(7), Framing::Chunks(40_000)] {
        let refused = post(&mounted, "/signup", "email=x%40yopmail.com", framing);
        assert!(refused.starts_with("HTTP/1.1 422 "), "{framing:?}: {refused}");
        let early = format!("email=x%40yopmail.com&x={padding}");
        let refused = post(&mounted, "/signup", &early, Framing::Length);
        assert!(refused.starts_with("HTTP/1.1 422 "), "{framing:?}: {refused}");
        let long = format!("email=jane%40gmail.com&x={padding}");
        for (path, body, action) in [
            ("/signup", "email=jane%40gmail.com", Some("x-riskgate-action: pass")),
            ("/signup", &*long, Some("x-riskgate-action: unscreened")),
            ("/login", "email=x%40yopmail.com", None),
            ("/login", &long, None),
        ] {
            // A chunk of seven bytes in a write of its own takes long.
            if body.len() > 1_000 && matches!(framing, Framing::Chunks(7)) {
                continue;
            }
            let answer = post(&mounted, path, body, framing);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{framing:?} {path}: {answer}");
            let seen = mounted.received_headers.recv_timeout(Duration::from_secs(10)).unwrap();
            let (head, received) = seen.split_once("\r\n\r\n").unwrap();
            assert!(received == body, "{framing:?} {path}: {} bytes", received.len());
            let head = head.to_ascii_lowercase();
            let action_line = head.lines().find(|line| line.starts_with("x-riskgate-action"));
            assert_eq!(action_line, action, "{framing:?} {path}");
        }
    }
    assert!(mounted.received_headers.try_recv().is_err(), "no refused form reaches the server");
}

#[test]
fn a_mounted_gate_keeps_the_limits_of_bodies_in_its_config() {
    let (address, requests) = spawn_reading_upstream();
    let limits = "[listen]\nmax_body_bytes = 100_000\nbody_timeout = \"300ms\"\n";
    let mounted = start_mounting_proxy_with(address, requests, &format!("{limits}{ROUTES}"));
    let long = format!("email=jane%40gmail.com&x={}", "y".repeat(100_000));
    for framing in [Framing::Length, Framing::Chunks(40_000)] {
        for path in ["/signup", "/login"] {
            let refused = post(&mounted, path, &long, framing);
            assert!(refused.starts_with("HTTP/1.1 413 "), "{framing:?} {path}: {refused}");
        }
    }
    let mut slow = TcpStream::connect(mounted.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!("POST /signup HTTP/1.1\r\nHost: h\r\nContent-Type: {FORM}\r\n");
    slow.write_all(format!("{head}Content-Length: 22\r\n\r\nemail=").as_bytes()).unwrap();
    let mut status = [0; 13];
    slow.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 408 ");
    assert!(post(&mounted, "/signup", "email=jane%40gmail.com", Framing::Length).contains(" 200 "));
}

#[test]
fn a_mounted_gate_sends_100_before_it_reads_a_form() {
    let (address, requests) = spawn_reading_upstream();
    let mounted = start_mounting_proxy_with(address, requests, ROUTES);
    for expectation in ["100-continue", "100-Continue, 100-continue", ", 100-continue"] {
        let mut stream = TcpStream::connect(mounted.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let body = "email=x%40yopmail.com";
        let head = format!(
            "POST /signup HTTP/1.1\r\nHost: h\r\nContent-Type: {FORM}\r\nExpect: {expectation}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut line = String::new();
        let mut reader = BufReader::new(stream);
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
        reader.read_line(&mut line).unwrap();
        reader.get_mut().write_all(body.as_bytes()).unwrap();
        line.clear();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 422 Unprocessable Entity\r\n");
    }
}

#[test]
fn a_client_of_a_mounted_gate_gets_one_100_even_if_the_server_sends_another() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (_sender, requests) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    break;
                }
            }
            let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\
                          Content-Length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
            reader.read_exact(&mut [0; 5]).unwrap();
        }
    });
    let mounted = start_mounting_proxy_with(address, requests, ROUTES);
    for path in ["/signup", "/login"] {
        let mut stream = TcpStream::connect(mounted.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: {FORM}\r\n");
        let rest = "Expect: 100-continue\r\nConnection: close\r\nContent-Length: 5\r\n\r\n";
        stream.write_all(format!("{head}{rest}").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "HTTP/1.1 100 Continue\r\n", "{path}");
        stream.write_all(b"a=b&c").unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(rest.starts_with("\r\nHTTP/1.1 200 "), "{path}: {rest}");
    }
}
