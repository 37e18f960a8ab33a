use std::net::TcpListener;

use redis::{ConnectionAddr, IntoConnectionInfo};

use super::*;

/// The address with this scheme of a server that sends these bytes in return for the first.
fn serve_once(scheme: &str, answer: &'static [u8]) -> ConnectionAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut request = [0; 6];
        client.read_exact(&mut request).unwrap();
        client.write_all(answer).unwrap();
    });
    url.as_str().into_connection_info().unwrap().addr().clone()
}

#[test]
fn a_server_shows_whether_it_speaks_tls() {
    for (scheme, answer, found) in [
        ("rediss", b"+PONG\r\n".as_slice(), Some("speaks no TLS; write redis://")),
        ("rediss", b"-NOAUTH Authentication required.\r\n", Some("speaks no TLS")),
        ("redis", b"\x15\x03\x03\0\x02\x02\x46", Some("speaks TLS; write rediss://")),
        ("redis", b"", Some("closed the connection, as one that speaks TLS does")),
        ("redis", b"+PONG\r\n", None),
        ("rediss", b"\x15\x03\x03\0\x02\x02\x46", None),
        ("rediss", b"", None),
    ] {
        let address = serve_once(scheme, answer);
        let other = find_other_protocol(&address, "");
        assert_eq!(other.is_some(), found.is_some(), "{scheme} {answer:?}: {other:?}");
        let other = other.unwrap_or_default();
        assert!(other.contains(found.unwrap_or_default()), "{other}");
    }
}
