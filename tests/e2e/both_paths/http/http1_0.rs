//! HTTP/1.0 clients don't know chunks: closing the connection ends a body of unknown length, and a
//! reset ends a truncated body.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::both_paths::proxies::proxying::gateway_with_script;
use crate::harness::{Gateway, MockUpstream, Step, TEST_TIMEOUT, get, response_bytes};

const CHUNKED_RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";

/// How a connection ended.
#[derive(Debug, PartialEq)]
enum CloseKind {
    InOrder,
    Reset,
}

/// Sends an HTTP/1.0 check. Returns the header in lower case, the body, and how the connection
/// ended.
#[track_caller]
fn send_http_1_0(gateway: &Gateway, method: &str, key: &str) -> (String, String, CloseKind) {
    let mut stream = TcpStream::connect(gateway.http).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let request = format!(
        "{method} /v1/check/a@b.com HTTP/1.0\r\nAuthorization: Bearer {key}\r\n\
         Connection: keep-alive\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let end = match stream.read_to_end(&mut bytes) {
        Ok(_) => CloseKind::InOrder,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => CloseKind::Reset,
        Err(error) => panic!("{error}"),
    };
    let text = String::from_utf8(bytes).unwrap();
    let (header, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    (header.to_ascii_lowercase(), body.to_owned(), end)
}

#[test]
fn an_http_1_0_client_gets_a_body_of_unknown_length_unchunked_until_close() {
    let until_closed = b"HTTP/1.1 200 OK\r\n\r\nabcdefg".to_vec();
    let older = b"HTTP/1.0 200 OK\r\n\r\nabcdefg".to_vec();
    for bytes in [CHUNKED_RESPONSE.to_vec(), until_closed, older] {
        let (_stand_in, gateway, key) =
            gateway_with_script(move |_| vec![Step::Send(bytes.clone()), Step::Close]);
        let (header, body, end) = send_http_1_0(&gateway, "GET", &key);
        assert!(header.starts_with("http/1.1 200"), "{header}");
        assert!(header.contains("\r\nconnection: close"), "{header}");
        assert!(!header.contains("transfer-encoding"), "{header}");
        assert!(!header.contains("content-length"), "{header}");
        assert_eq!((body.as_str(), end), ("abcdefg", CloseKind::InOrder));
        // For an HTTP/1.1 client the last chunk ends the body.
        let newer = gateway.get("/v1/check/a@b.com", &key).expect(200);
        assert_eq!((newer.text().as_str(), newer.is_complete), ("abcdefg", true));
    }
}

#[test]
fn an_http_1_0_client_gets_the_content_length_and_no_body_after_head() {
    let (_stand_in, gateway, key) =
        gateway_with_script(|_| vec![Step::Send(response_bytes(200, "", "abcdefg"))]);
    let (header, body, end) = send_http_1_0(&gateway, "GET", &key);
    assert!(header.contains("\r\ncontent-length: 7"), "{header}");
    assert_eq!((body.as_str(), end), ("abcdefg", CloseKind::InOrder));
    let (_stand_in, gateway, key) = gateway_with_script(|_| {
        vec![Step::Send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec())]
    });
    let (header, body, end) = send_http_1_0(&gateway, "HEAD", &key);
    assert!(header.starts_with("http/1.1 200"), "{header}");
    assert_eq!((body.as_str(), end), ("", CloseKind::InOrder));
}

#[test]
fn a_truncated_response_to_an_http_1_0_client_ends_with_a_reset() {
    let cut = MockUpstream::with_script(|seen| match seen.request_line().contains("whole") {
        true => vec![Step::Send(CHUNKED_RESPONSE.to_vec())],
        false => {
            vec![Step::Send(CHUNKED_RESPONSE[..CHUNKED_RESPONSE.len() - 8].to_vec()), Step::Close]
        }
    });
    let (gateway, key) = crate::both_paths::proxies::proxying::gateway_in_front_of(&cut);
    let (header, body, end) = send_http_1_0(&gateway, "GET", &key);
    assert!(header.starts_with("http/1.1 200"), "{header}");
    assert!("abcdefg".starts_with(&body), "{body}");
    assert_eq!(end, CloseKind::Reset, "nothing else distinguishes it from a complete response");
    assert_eq!(gateway.get_month_count(&key), 1);
    get("/v1/check/whole").key(&key).send(gateway.http).expect(200);
}
