//! What a connection may begin with before its first request: the PROXY protocol's header, or
//! HTTP/2's preface.
//!
//! It looks at bytes only. Whether they are wanted is the door's to know.

use std::net::{IpAddr, SocketAddr};

use ppp::{HeaderResult, PartialResult, v1, v2};

/// What an HTTP/2 connection begins with (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest PROXY header that is read, its additional fields included.
const LONGEST: usize = 2048;

/// A PROXY header at the front of a buffer (haproxy.org, proxy-protocol.txt, versions 1 and 2).
#[derive(Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// So many bytes, and who the proxy speaks for, if it says so: of itself it speaks without a
    /// name.
    Whole(usize, Option<SocketAddr>),
    /// More bytes are needed.
    Partial,
    /// Something else.
    Malformed,
}

/// Looks for a PROXY header at the front of `bytes`.
pub fn read_proxy_header(bytes: &[u8]) -> ProxyHeader {
    if is_part_of_a_line(bytes) {
        return ProxyHeader::Partial;
    }
    let parsed = HeaderResult::parse(bytes);
    if parsed.is_incomplete() {
        return match bytes.len() < LONGEST {
            true => ProxyHeader::Partial,
            false => ProxyHeader::Malformed,
        };
    }
    match parsed {
        HeaderResult::V1(Ok(header)) => {
            let client = match header.addresses {
                v1::Addresses::Tcp4(a) => Some((IpAddr::V4(a.source_address), a.source_port)),
                v1::Addresses::Tcp6(a) => Some((IpAddr::V6(a.source_address), a.source_port)),
                v1::Addresses::Unknown => None,
            };
            ProxyHeader::Whole(header.header.len(), client.map(SocketAddr::from))
        }
        HeaderResult::V2(Ok(header)) if header.len() <= LONGEST => {
            let client = match (header.command, header.addresses) {
                (v2::Command::Local, _) => None,
                (_, v2::Addresses::IPv4(a)) => Some((IpAddr::V4(a.source_address), a.source_port)),
                (_, v2::Addresses::IPv6(a)) => Some((IpAddr::V6(a.source_address), a.source_port)),
                (_, v2::Addresses::Unspecified | v2::Addresses::Unix(_)) => None,
            };
            ProxyHeader::Whole(header.len(), client.map(SocketAddr::from))
        }
        _ => ProxyHeader::Malformed,
    }
}

/// Whether these bytes may become a header of version 1, a line of 107 bytes at most.
fn is_part_of_a_line(bytes: &[u8]) -> bool {
    const BEGINS: &[u8] = b"PROXY ";
    match bytes.get(..BEGINS.len()) {
        None => !bytes.is_empty() && BEGINS.starts_with(bytes),
        Some(begins) => begins == BEGINS && bytes.len() < 107 && !bytes.contains(&b'\n'),
    }
}

/// Whether these bytes are HTTP/2's preface; `None` while they could become it.
pub fn is_preface(bytes: &[u8]) -> Option<bool> {
    if bytes.len() >= PREFACE.len() {
        return Some(bytes.starts_with(PREFACE));
    }
    if PREFACE.starts_with(bytes) { None } else { Some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(length: usize, client: &str) -> ProxyHeader {
        ProxyHeader::Whole(length, client.parse().ok())
    }

    #[test]
    fn both_versions_say_who_the_client_is() {
        let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 443\r\n\x16\x03\x01\xff\r\nrest";
        assert_eq!(read_proxy_header(line), whole(41, "192.0.2.1:4000"));
        let line = b"PROXY TCP6 2001:db8::1 ::1 4000 443\r\nGET /";
        assert_eq!(read_proxy_header(line), whole(37, "[2001:db8::1]:4000"));
        let line = b"PROXY UNKNOWN\r\n";
        assert_eq!(read_proxy_header(line), whole(15, ""));
        for cut in 0..line.len() {
            assert_eq!(read_proxy_header(&line[..cut]), ProxyHeader::Partial, "{cut}");
        }

        let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        binary.extend([192, 0, 2, 1, 192, 0, 2, 2, 0x0f, 0xa0, 1, 187]);
        assert_eq!(read_proxy_header(&binary), whole(28, "192.0.2.1:4000"));
        for cut in 0..binary.len() {
            assert_eq!(read_proxy_header(&binary[..cut]), ProxyHeader::Partial, "{cut}");
        }
        binary[12] = 0x20;
        assert_eq!(read_proxy_header(&binary), whole(28, ""), "a health check of the proxy's own");
    }

    #[test]
    fn anything_else_is_malformed_as_soon_as_it_can_be_known() {
        for bytes in [
            b"GET / HTTP/1.1\r\n".as_slice(),
            b"PROXY TCP4 nowhere 192.0.2.2 4000 443\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 99999\r\n",
            b"\x16\x03\x01\x02\0",
            b"PROXX ",
            &[b'P'; 200],
        ] {
            assert_eq!(read_proxy_header(bytes), ProxyHeader::Malformed, "{bytes:?}");
        }
        let mut huge = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec();
        huge.resize(LONGEST, 0);
        assert_eq!(read_proxy_header(&huge), ProxyHeader::Malformed);
    }

    #[test]
    fn a_preface_is_known_at_its_first_wrong_byte() {
        assert_eq!(is_preface(b"GET "), Some(false));
        assert_eq!(is_preface(b"PRI * "), None);
        assert_eq!(is_preface(PREFACE), Some(true));
        assert_eq!(is_preface(&[PREFACE, b"more"].concat()), Some(true));
    }
}
