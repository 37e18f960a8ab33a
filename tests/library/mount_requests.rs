//! A mounted gate refuses requests whose body two servers could end at different bytes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::mount::{MountingProxy, start_mounting_proxy_with};

const ROUTES: &str = "
[[upstream.route]]
prefix = \"/\"
key = false

[upstream.route.screen]
fields = [\"email\"]
paths = [\"/signup\"]
mode = \"block\"
";
const SMUGGLED: &str = "GET /v1/usage HTTP/1.1\r\nHost: h\r\n\r\n";

/// Starts the example in front of a server that answers nothing.
fn start_in_front_of_silence() -> (MountingProxy, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    (start_mounting_proxy_with(address, channel().1, ROUTES), silent)
}

/// Sends a head, then a body in a packet of its own. Returns all that comes back until the
/// connection ends.
fn send_in_two_parts(mounted: &MountingProxy, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(mounted.address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    // If the proxy takes the head for a whole request, it answers before the body.
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut received = match stream.read(&mut answer) {
        Ok(length) => answer[..length].to_vec(),
        Err(_) => Vec::new(),
    };
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // The proxy may have closed the connection.
    let _ = stream.write_all(body.as_bytes());
    let _ = stream.read_to_end(&mut received);
    String::from_utf8_lossy(&received).into_owned()
}

#[test]
fn a_mounted_gate_refuses_a_connection_field_that_hides_a_field_it_relies_on() {
    let (mounted, _silent) = start_in_front_of_silence();
    let length = SMUGGLED.len();
    for path in ["/signup", "/api", "/v1/assess", "/nowhere/../x"] {
        for fields in [
            format!("Connection: content-length\r\nContent-Length: {length}\r\n"),
            format!("Connection: close, Content-Length\r\nContent-Length: {length}\r\n"),
            "Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n".to_owned(),
            format!("Connection: Host\r\nContent-Length: {length}\r\n"),
            format!("Connection: X-Forwarded-For\r\nContent-Length: {length}\r\n"),
            format!("Connection: {}x\r\nContent-Length: {length}\r\n", "x, ".repeat(64)),
        ] {
            let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            let answer = send_in_two_parts(&mounted, &head, SMUGGLED);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{path} {fields}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{path} {fields}: {answer}");
            assert!(answer.contains(r#"{"error":"bad_request""#), "{path} {fields}: {answer}");
        }
    }
}

#[test]
fn a_mounted_gate_refuses_a_body_whose_length_is_not_clear() {
    let (mounted, _silent) = start_in_front_of_silence();
    for path in ["/signup", "/api"] {
        for (version, fields) in [
            ("1.1", "Content-Length: 3\r\nContent-Length: 3\r\n"),
            ("1.1", "Content-Length: 3, 3\r\n"),
            ("1.1", "Transfer-Encoding: gzip, chunked\r\n"),
            ("1.1", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            ("1.0", "Transfer-Encoding: chunked\r\n"),
        ] {
            let head = format!("POST {path} HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
            let answer = send_in_two_parts(&mounted, &head, "3\r\nabc\r\n0\r\n\r\n");
            let status = answer.get(8..13);
            assert_eq!(status, Some(" 400 "), "{path} {fields}: {answer}");
            assert_eq!(answer.matches("HTTP/1.").count(), 1, "{path} {fields}: {answer}");
        }
    }
}

#[test]
fn a_mounted_gate_answers_malformed_chunks() {
    let (mounted, _silent) = start_in_front_of_silence();
    for path in ["/signup", "/api"] {
        for chunks in ["zz\r\nabc\r\n0\r\n\r\n", "3\r\nabcX\r\n0\r\n\r\n"] {
            let form = "Content-Type: application/x-www-form-urlencoded\r\n";
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: h\r\n{form}Transfer-Encoding: chunked\r\n\r\n"
            );
            let answer = send_in_two_parts(&mounted, &head, chunks);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{path} {chunks:?}: {answer}");
            assert!(answer.contains(r#"{"error":"bad_request""#), "{path} {chunks:?}: {answer}");
        }
    }
}
