//! Finds out whether a server does not answer because it speaks TLS, or because it speaks none.
//!
//! Sends one PING without user and password. riskgate does this only if the time limit of the
//! connection is long, as that of commands: a gateway that connects again usually has no time for
//! this question.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use redis::ConnectionAddr;

/// How long the probe may take for each step.
const STEP_TIMEOUT: Duration = Duration::from_millis(300);
/// riskgate asks only if the time limit of the connection is at least this long.
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
mod tests;
