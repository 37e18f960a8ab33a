//! Finds out whether a server does not answer because it speaks TLS, or because it speaks none.
//!
//! Sends one PING without user and password. riskgate does this only for a command, where a person
//! waits; a node that connects again has no time for this question.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use redis::ConnectionAddr;

/// How long the probe may take for each step.
const STEP_TIMEOUT: Duration = Duration::from_millis(300);
/// riskgate asks only if the time limit of the connection is at least this long: then a person
/// waits.
pub(super) const MIN_TIMEOUT_FOR_PROBE: Duration = Duration::from_secs(5);

/// Returns what is wrong with the scheme of the address, if the server shows it. `kind` is what the
/// scheme has behind `redis` or `rediss`, such as `+cluster`.
pub(super) fn find_other_protocol(address: &ConnectionAddr, kind: &str) -> Option<String> {
    let (host, port, has_tls) = match address {
        ConnectionAddr::Tcp(host, port) => (host, *port, false),
        ConnectionAddr::TcpTls { host, port, .. } => (host, *port, true),
        _ => return None,
    };
    let address = (host.as_str(), port).to_socket_addrs().ok()?.next()?;
    let mut server = TcpStream::connect_timeout(&address, STEP_TIMEOUT).ok()?;
    server.set_read_timeout(Some(STEP_TIMEOUT)).ok()?;
    server.set_write_timeout(Some(STEP_TIMEOUT)).ok()?;
    server.write_all(b"PING\r\n").ok()?;
    let mut first = [0];
    let answer = match server.read(&mut first) {
        Ok(0) => None,
        Ok(_) => Some(first[0]),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
        Err(_) => return None,
    };
    let (found, scheme) = match (answer, has_tls) {
        (Some(b'+' | b'-'), true) => ("the server speaks no TLS", "redis"),
        // An alert or a handshake of TLS.
        (Some(0x15 | 0x16), false) => ("the server speaks TLS", "rediss"),
        (None, false) => {
            ("the server closed the connection, as one that speaks TLS does", "rediss")
        }
        _ => return None,
    };
    Some(format!("{found}; write {scheme}{kind}:// for it"))
}

#[cfg(test)]
mod tests {
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
}
