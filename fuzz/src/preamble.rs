//! riskgate decides by the first bytes of a connection whether they are a PROXY header or an HTTP/2
//! preface. No later byte changes the decision.

use std::net::{IpAddr, SocketAddr};

use ppp::v1;
use riskgate::downstream::preamble::{
    HTTP2_PREFACE, ProxyHeader, parse_proxy_header, starts_with_http2_preface,
};

const MAX_PROXY_HEADER_BYTES: usize = 16 + 65_535;
const MAX_PROXY_V1_LINE_BYTES: usize = 107;

/// Panics if a promise is broken for this input.
pub fn check_input(bytes: &[u8]) {
    let decision = parse_byte_by_byte(bytes);
    let more = [bytes, b"\r\nGET / HTTP/1.1\r\n\0"].concat();
    if decision != ProxyHeader::Partial {
        assert_eq!(parse_proxy_header(&more), decision, "later bytes change the decision");
    }
    if bytes.starts_with(b"PROXY ") {
        assert_proxy_v1_decision(bytes, &decision);
    }
    if bytes.len() >= 16 && bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n") {
        assert_proxy_v2_decision(bytes, &decision);
    }
    assert_http2_preface_decision(bytes);
    let is_proxied = matches!(decision, ProxyHeader::Complete(..));
    assert!(
        !is_proxied || starts_with_http2_preface(bytes) == Some(false),
        "both a PROXY header and an HTTP/2 preface"
    );
}

/// Gives the parser longer and longer prefixes, as bytes arrive at the connection handler. Asserts
/// that further bytes do not change a decision, and that the parser accepts a PROXY header as soon
/// as its last byte has arrived. Returns the decision.
fn parse_byte_by_byte(bytes: &[u8]) -> ProxyHeader {
    let mut decision = ProxyHeader::Partial;
    let mut cut = 0;
    while cut <= bytes.len() {
        let verdict = parse_proxy_header(&bytes[..cut]);
        if decision != ProxyHeader::Partial {
            assert_eq!(verdict, decision, "byte {cut} changes the decision");
            // A few lengths of the remaining bytes are enough.
            cut += 61;
            continue;
        }
        if let ProxyHeader::Complete(length, _) = verdict {
            assert_eq!(length, cut, "the header was complete before");
        }
        assert!(cut < MAX_PROXY_HEADER_BYTES || verdict != ProxyHeader::Partial);
        decision = verdict;
        cut += 1;
    }
    decision
}

/// Asserts the decision about a PROXY header of version 1: the crate ppp must agree.
fn assert_proxy_v1_decision(bytes: &[u8], decision: &ProxyHeader) {
    let front = &bytes[..bytes.len().min(MAX_PROXY_V1_LINE_BYTES)];
    let Some(end) = front.iter().position(|byte| *byte == b'\n') else {
        let may_continue = front.len() < MAX_PROXY_V1_LINE_BYTES;
        assert_eq!(*decision == ProxyHeader::Partial, may_continue);
        return assert!(may_continue || *decision == ProxyHeader::Malformed);
    };
    let line = &front[..=end];
    let client = match v1::Header::try_from(line).map(|header| header.addresses) {
        Ok(v1::Addresses::Tcp4(a)) => Some((IpAddr::V4(a.source_address), a.source_port)),
        Ok(v1::Addresses::Tcp6(a)) => Some((IpAddr::V6(a.source_address), a.source_port)),
        Ok(v1::Addresses::Unknown) | Err(_) => None,
    };
    // The crate ppp also accepts a port with a sign, and a space in place of the carriage return.
    // riskgate must refuse both.
    let client = client.filter(|_| !line.contains(&b'+')).map(SocketAddr::from);
    let is_unknown = line == b"PROXY UNKNOWN\r\n" || line.starts_with(b"PROXY UNKNOWN ");
    let is_text = line.ends_with(b"\r\n") && std::str::from_utf8(line).is_ok();
    let expected = if is_text && (client.is_some() || is_unknown) {
        ProxyHeader::Complete(line.len(), client)
    } else {
        ProxyHeader::Malformed
    };
    assert_eq!(*decision, expected);
}

/// Asserts the decision about a PROXY header of version 2, field by field.
fn assert_proxy_v2_decision(bytes: &[u8], decision: &ProxyHeader) {
    let (is_proxied, family) = (bytes[12] == 0x21, bytes[13] >> 4);
    let length = 16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    let address_lengths = [0, 12, 36, 216];
    let is_supported = matches!(bytes[12], 0x20 | 0x21) && bytes[13] & 0x0f <= 2 && family <= 3;
    if !is_supported
        || length > MAX_PROXY_HEADER_BYTES
        || length < 16 + address_lengths[usize::from(family)]
    {
        return assert_eq!(*decision, ProxyHeader::Malformed);
    }
    if bytes.len() < length {
        return assert_eq!(*decision, ProxyHeader::Partial);
    }
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let client: Option<(IpAddr, u16)> = match family {
        1 => Some((<[u8; 4]>::try_from(&bytes[16..20]).expect("4 bytes").into(), port(24))),
        2 => Some((<[u8; 16]>::try_from(&bytes[16..32]).expect("16 bytes").into(), port(48))),
        _ => None,
    };
    let client = client.filter(|_| is_proxied).map(SocketAddr::from);
    assert_eq!(*decision, ProxyHeader::Complete(length, client));
}

fn assert_http2_preface_decision(bytes: &[u8]) {
    for cut in 0..=bytes.len().min(HTTP2_PREFACE.len() + 1) {
        let matching_bytes =
            bytes[..cut].iter().zip(HTTP2_PREFACE).take_while(|(a, b)| a == b).count();
        let expected = match matching_bytes {
            same if same == HTTP2_PREFACE.len() => Some(true),
            same if same == cut => None,
            _ => Some(false),
        };
        assert_eq!(starts_with_http2_preface(&bytes[..cut]), expected, "{cut}");
    }
}
