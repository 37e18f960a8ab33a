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
