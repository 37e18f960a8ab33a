//! The preamble of a connection before its first request: the PROXY protocol's header, and HTTP/2's
//! preface.
//!
//! This module only parses bytes. The caller decides whether a preamble is expected.

use std::net::{IpAddr, SocketAddr};

use ppp::{v1, v2};

/// The start of an HTTP/2 connection (RFC 9113 section 3.4).
pub const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest PROXY header of version 1, which is one line, in bytes, including CRLF.
const MAX_PROXY_V1_LINE_BYTES: usize = 107;

/// A PROXY header at the front of a buffer (haproxy.org, proxy-protocol.txt, versions 1 and 2).
#[derive(Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// The header's length in bytes, and the client's address. The address is `None` if the header
    /// names no client with an IP address, as with UNKNOWN and LOCAL.
    Complete(usize, Option<SocketAddr>),
    /// More bytes are needed.
    Partial,
    /// The bytes are no valid PROXY header, and more bytes can't change that.
    Malformed,
}

/// Parses the PROXY header at the front of `bytes`.
pub fn parse_proxy_header(bytes: &[u8]) -> ProxyHeader {
    const V1_START: &[u8] = b"PROXY ";
    if bytes.starts_with(V1_START) {
        return parse_proxy_v1(bytes);
    }
    if V1_START.starts_with(bytes) { ProxyHeader::Partial } else { parse_proxy_v2(bytes) }
}

/// Parses a PROXY header of version 1: one line of text.
fn parse_proxy_v1(bytes: &[u8]) -> ProxyHeader {
    let front = &bytes[..bytes.len().min(MAX_PROXY_V1_LINE_BYTES)];
    let Some(end) = front.iter().position(|byte| *byte == b'\n') else {
        let may_end = front.len() < MAX_PROXY_V1_LINE_BYTES;
        return if may_end { ProxyHeader::Partial } else { ProxyHeader::Malformed };
    };
    match parse_proxy_v1_client(&front[..=end]) {
        Some(client) => ProxyHeader::Complete(end + 1, client),
        None => ProxyHeader::Malformed,
    }
}

/// Returns the client's address from a PROXY header of version 1. `None` means that the line is
/// malformed. `Some(None)` means that the line names no client.
fn parse_proxy_v1_client(line: &[u8]) -> Option<Option<SocketAddr>> {
    // The ppp crate would accept a line without CR, and a plus sign before a port.
    let line = std::str::from_utf8(line).ok().filter(|line| line.ends_with("\r\n"))?;
    // The specification says to ignore the rest of the line. The ppp crate would refuse a line of
    // more words.
    if line.starts_with("PROXY UNKNOWN ") {
        return Some(None);
    }
    // The ppp crate panics if a character of several bytes follows CR.
    if !line.is_ascii() || line.contains('+') {
        return None;
    }
    let header = v1::Header::try_from(line).ok()?;
    Some(match header.addresses {
        v1::Addresses::Tcp4(a) => Some((a.source_address, a.source_port).into()),
        v1::Addresses::Tcp6(a) => Some((a.source_address, a.source_port).into()),
        v1::Addresses::Unknown => None,
    })
}

/// Parses a PROXY header of version 2: a binary header whose first 16 bytes contain the length of
/// the rest, at most 64 KiB. Proxies can add the client's certificate, which has several KiB.
fn parse_proxy_v2(bytes: &[u8]) -> ProxyHeader {
    match v2::Header::try_from(bytes) {
        Ok(header) => {
            let client = match (header.command, header.addresses) {
                (v2::Command::Local, _) => None,
                (_, v2::Addresses::IPv4(a)) => Some((IpAddr::V4(a.source_address), a.source_port)),
                (_, v2::Addresses::IPv6(a)) => Some((IpAddr::V6(a.source_address), a.source_port)),
                (_, v2::Addresses::Unspecified | v2::Addresses::Unix(_)) => None,
            };
            ProxyHeader::Complete(header.len(), client.map(SocketAddr::from))
        }
        Err(v2::ParseError::Incomplete(_) | v2::ParseError::Partial(..)) => ProxyHeader::Partial,
        Err(_) => ProxyHeader::Malformed,
    }
}

/// Returns true if `bytes` start with HTTP/2's preface; `None` while more bytes are needed.
pub fn starts_with_http2_preface(bytes: &[u8]) -> Option<bool> {
    if bytes.len() >= HTTP2_PREFACE.len() {
        return Some(bytes.starts_with(HTTP2_PREFACE));
    }
    if HTTP2_PREFACE.starts_with(bytes) { None } else { Some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete_header(length: usize, client: &str) -> ProxyHeader {
        ProxyHeader::Complete(length, client.parse().ok())
    }

    #[test]
    fn both_proxy_versions_yield_the_peer_address() {
        let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 443\r\n\x16\x03\x01\xff\r\nrest";
        assert_eq!(parse_proxy_header(line), complete_header(41, "192.0.2.1:4000"));
        let line = b"PROXY TCP6 2001:db8::1 ::1 4000 443\r\nGET /";
        assert_eq!(parse_proxy_header(line), complete_header(37, "[2001:db8::1]:4000"));
        let line = b"PROXY UNKNOWN\r\n";
        assert_eq!(parse_proxy_header(line), complete_header(15, ""));
        let more = b"PROXY UNKNOWN the rest of the line is ignored\r\n";
        assert_eq!(parse_proxy_header(more), complete_header(more.len(), ""));
        for cut in 0..line.len() {
            assert_eq!(parse_proxy_header(&line[..cut]), ProxyHeader::Partial, "{cut}");
        }

        let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        binary.extend([192, 0, 2, 1, 192, 0, 2, 2, 0x0f, 0xa0, 1, 187]);
        assert_eq!(parse_proxy_header(&binary), complete_header(28, "192.0.2.1:4000"));
        for cut in 0..binary.len() {
            assert_eq!(parse_proxy_header(&binary[..cut]), ProxyHeader::Partial, "{cut}");
        }
        // The longest header, with an unknown record.
        let mut long = binary.clone();
        long[14..16].copy_from_slice(&[0xff; 2]);
        long.extend([0xe0, 0xff, 0xf0]);
        long.resize(16 + 0xffff, 0);
        assert_eq!(parse_proxy_header(&long), complete_header(16 + 0xffff, "192.0.2.1:4000"));
        assert_eq!(parse_proxy_header(&long[..5_000]), ProxyHeader::Partial);
        binary[12] = 0x20;
        assert_eq!(
            parse_proxy_header(&binary),
            complete_header(28, ""),
            "a health check by the proxy itself"
        );
    }

    #[test]
    fn other_bytes_are_no_proxy_header() {
        for bytes in [
            b"GET / HTTP/1.1\r\n".as_slice(),
            b"PROXY TCP4 nowhere 192.0.2.2 4000 443\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 99999\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 +400 443\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 0443\r\n",
            b"PROXY TCP4 192.0.2.1\r\n",
            b"PROXY TCP6 192.0.2.1 192.0.2.2 4000 443\r\n",
            b"PROXY TCP6 2001:db8::1 ::1 4000 443 \n",
            b"PROXY TCP1 \r\xc7\xaf\r\n",
            b"PROXY UNKNOWN\r\r\n",
            b"PROXY UNKNOWN \n",
            &[b"PROXY UNKNOWN ".as_slice(), &[b'a'; 93]].concat(),
            b"\x16\x03\x01\x02\0",
            b"PROXX ",
            &[b'P'; 200],
            b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\x0c",
        ] {
            assert_eq!(parse_proxy_header(bytes), ProxyHeader::Malformed, "{bytes:?}");
        }
    }

    #[test]
    fn a_partial_http2_preface_is_undecided() {
        assert_eq!(starts_with_http2_preface(b"GET "), Some(false));
        assert_eq!(starts_with_http2_preface(b"PRI * "), None);
        assert_eq!(starts_with_http2_preface(HTTP2_PREFACE), Some(true));
        assert_eq!(starts_with_http2_preface(&[HTTP2_PREFACE, b"more"].concat()), Some(true));
    }
}
