use super::*;

/// Forwards a response that arrives in parts of this size to a client of HTTP/1.1. Returns the
/// bytes for the client, the head, and the number of bytes that arrived after the end of the
/// response.
fn forward_in_parts(
    answer: &str,
    is_head_method: bool,
    part_size: usize,
) -> Result<(String, ResponseHead, usize), MalformedResponse> {
    let (header, body, head, left) =
        forward_to_client::<Http1Header>(answer, is_head_method, part_size)?;
    let forwarded = [header.finish(b"now", false), body].concat();
    Ok((String::from_utf8(forwarded).unwrap(), head, left))
}

/// The same, with the header and the body apart.
fn forward_to_client<H: ClientResponseHeader + Default>(
    answer: &str,
    is_head_method: bool,
    part_size: usize,
) -> Result<(H, Vec<u8>, ResponseHead, usize), MalformedResponse> {
    let common = CommonHeaders::default();
    let allowed_fields = AllowedResponseFields::OfCheck;
    let context = ResponseContext { common_headers: &common, is_head_method, allowed_fields };
    let (mut arrived, mut header, mut out) = (BytesMut::new(), H::default(), Vec::new());
    let mut parts = answer.as_bytes().chunks(part_size);
    let mut informational = InformationalResponseCounter::default();
    let mut answer = loop {
        let head = forward_response_head(&mut arrived, &context, &mut informational, &mut header)?;
        if let Some(answer) = head {
            break answer;
        }
        arrived.extend_from_slice(parts.next().ok_or(MalformedResponse::Incomplete)?);
    };
    answer.body.forward_arrived_bytes(&mut arrived, &mut out)?;
    for part in parts {
        arrived.extend_from_slice(part);
        answer.body.forward_arrived_bytes(&mut arrived, &mut out)?;
    }
    answer.body.finish_at_eof(&mut out)?;
    Ok((header, out, answer, arrived.len()))
}

/// Returns the body of a forwarded response as a client reads it: decodes chunks, if any.
fn decode_body(forwarded: &str) -> String {
    let (header, mut rest) = forwarded.split_once("\r\n\r\n").unwrap();
    if !header.contains("Transfer-Encoding: chunked") {
        return rest.to_owned();
    }
    let mut body = String::new();
    loop {
        let (size, data) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        body += &data[..size];
        rest = data[size..].strip_prefix("\r\n").unwrap();
        if size == 0 {
            assert_eq!(rest, "");
            return body;
        }
    }
}

#[test]
fn a_body_that_arrives_in_parts_is_forwarded_whole() {
    for (framing, sent, left) in [
        ("Content-Length: 5\r\n", "hello", 0),
        ("content-length: 5, 5\r\nContent-Length:5\r\n", "hello", 0),
        ("Content-Length: 5\r\n", "hello, and more", 10),
        ("", "hello", 0),
        ("Transfer-Encoding: chunked\r\n", "2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n", 0),
        ("Transfer-Encoding: Chunked\r\n", "05\r\nhello\r\n0\r\nTrail: er\r\n\r\nmore", 4),
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", 0),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\nA: b\r\n{framing}\r\n{sent}");
        for size in 1..=answer.len() {
            let (forwarded, answer, rest) = forward_in_parts(&answer, false, size).unwrap();
            assert!(forwarded.starts_with("HTTP/1.1 200 OK\r\nA: b\r\n"), "{forwarded}");
            assert_eq!(decode_body(&forwarded), "hello", "{framing}");
            assert_eq!((rest, answer.body.is_complete()), (left, true), "{framing}");
        }
        let (header, body, head, _) = forward_to_client::<Http2Header>(&answer, false, 3).unwrap();
        assert_eq!((body.as_slice(), head.body.is_complete()), (&b"hello"[..], true));
        let header = header.finish().unwrap();
        assert_eq!((&header.headers["a"], header.status.as_u16()), (&"b".parse().unwrap(), 200));
        assert!(!header.headers.contains_key("transfer-encoding"), "{framing}");
    }
}

#[test]
fn head_and_304_but_not_204_keep_content_length() {
    let forward = |answer: &str, is_head| forward_in_parts(answer, is_head, 9).unwrap().0;
    let length = forward("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true);
    assert!(length.contains("\r\nContent-Length: 5\r\n") && length.ends_with("\r\n\r\n"));
    assert!(forward("HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n", false).contains(": 5\r\n"));
    let no_content = forward("HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n", false);
    assert!(!no_content.contains("Content-Length"));
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    let after = forward(&format!("{interim}HTTP/1.1 204 No\r\n\r\n"), false);
    assert!(after.starts_with("HTTP/1.1 204 No Content\r\n") && !after.contains("Link"));
}

#[test]
fn a_folded_field_is_unfolded() {
    let answer = "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n";
    assert!(forward_in_parts(answer, false, 5).unwrap().0.contains("\r\nA: b c\r\n"));
}

#[test]
fn ambiguous_responses_are_malformed() {
    use MalformedResponse::{
        Chunk, ContentLength, Header, Incomplete, Status, TooManyFields, TransferEncoding,
    };
    let fields = "a: b\r\n".repeat(257);
    for (expected, behind_version) in [
        (ContentLength, "200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
        (ContentLength, "200 OK\r\nContent-Length: +5\r\n\r\nhello"),
        (ContentLength, "200 OK\r\nContent-Length:\r\n\r\nhello"),
        (ContentLength, "200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello"),
        (ContentLength, "200 OK\r\nContent-Length: 00000000000000000005\r\n\r\nhello"),
        (Incomplete, "200 OK\r\nContent-Length: 9\r\n\r\nhello"),
        (TransferEncoding, "200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        (Chunk, "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n"),
        (Chunk, "200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhello\r\n0\r\n\r\n"),
        (Incomplete, "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        (Chunk, "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrail: er\n\r\n"),
        (Status, "101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
        (Header, "200 OK\r\nno colon\r\n\r\n"),
        (Header, "no answer\r\n\r\n"),
        (TooManyFields, &format!("200 OK\r\n{fields}\r\n")),
    ] {
        let answer = format!("HTTP/1.1 {behind_version}");
        assert_eq!(forward_in_parts(&answer, false, 7).err(), Some(expected), "{answer}");
    }
}

#[test]
fn close_or_http_1_0_without_keep_alive_ends_persistence() {
    let is_kept = |version: u8, connection: &str| {
        does_server_keep_alive(
            Some(version),
            &connection.split(',').map(|it| it.trim().as_bytes()).collect::<Vec<_>>(),
        )
    };
    assert!(is_kept(1, "") && is_kept(1, "keep-alive") && is_kept(0, "x, Keep-Alive"));
    assert!(!is_kept(0, "") && !is_kept(1, "close") && !is_kept(1, "keep-alive, Close"));
}

#[test]
fn server_date_and_hop_by_hop_fields_are_not_forwarded() {
    let answer = "HTTP/1.1 503 x\r\nServer: x\r\nDate: then\r\nConnection: keep-alive, X-Hop\r\n\
                  X-Hop: 1\r\nVary: Accept\r\nCache-Control: max-age=1\r\nContent-Length: 0\r\n\r\n";
    let (forwarded, answer, _) = forward_in_parts(answer, false, 1_000).unwrap();
    assert_eq!(
        forwarded,
        "HTTP/1.1 503 Service Unavailable\r\nVary: Accept\r\nCache-Control: max-age=1\r\n\
         Content-Length: 0\r\nx-riskgate-source: upstream\r\nx-fail-open: true\r\n\
         x-request-id: \r\nDate: now\r\nConnection: keep-alive\r\n\r\n"
    );
    assert_eq!((answer.status, answer.is_connection_reusable), (503, true));
    assert!(answer.body.is_complete());
    let many = format!("HTTP/1.1 200 OK\r\nConnection: {}\r\n\r\n", "a,".repeat(65));
    assert_eq!(
        forward_in_parts(&many, false, 1_000).err(),
        Some(MalformedResponse::ConnectionOptions)
    );
}
