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
mod tests;
