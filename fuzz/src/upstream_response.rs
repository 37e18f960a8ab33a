//! riskgate forwards an upstream response in the same way, in however many parts it arrives. A
//! client reads exactly one response from the output, without fields that are reserved to riskgate.

use bytes::BytesMut;
use riskgate::exchange::forwarding::AllowedResponseFields;
use riskgate::exchange::{InformationalResponseCounter, MalformedResponse};
use riskgate::message::response::CommonHeaders;
use riskgate::proxy::upstream::{
    ClientResponseHeader, Http1Header, Http2Header, ResponseContext, forward_response_head,
};

/// The header, the data of the body, true if the response was truncated, and the number of bytes
/// after its end.
type ForwardedResponse<H> = Result<(H, Vec<u8>, bool, usize), MalformedResponse>;

/// Panics if a promise is broken for this input.
pub fn check_input(input: &[u8]) {
    let Some((first, answer)) = input.split_first() else { return };
    let (is_head, part) = (first & 1 == 1, usize::from(first >> 1) + 1);
    let whole = forward_over_http1(answer, is_head, answer.len().max(1));
    assert_eq!(whole, forward_over_http1(answer, is_head, part), "parts of {part}");
    let over_http2 = forward_response_in_parts::<Http2Header>(answer, is_head, part);
    let Ok((header, body, is_cut, unread)) = whole else {
        assert!(over_http2.is_err(), "HTTP/1.1 and HTTP/2");
        return;
    };
    let (header_over_http2, body_over_http2, is_cut_over_http2, unread_over_http2) =
        over_http2.expect("forwarded over HTTP/2 as over HTTP/1.1");
    assert_eq!((&body_over_http2, is_cut_over_http2, unread_over_http2), (&body, is_cut, unread));
    let header_over_http2 = header_over_http2.finish().expect("a status");
    for never in ["connection", "transfer-encoding"] {
        assert!(!header_over_http2.headers.contains_key(never), "{never} over HTTP/2");
    }
    let mut fields = [httparse::EMPTY_HEADER; 300];
    let mut read = httparse::Response::new(&mut fields);
    assert_eq!(read.parse(&header), Ok(httparse::Status::Complete(header.len())));
    let count = |name: &str| {
        read.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count()
    };
    for once in ["date", "connection", "x-request-id", "x-riskgate-source"] {
        assert_eq!(count(once), 1, "{once}");
    }
    for never in ["server", "set-cookie", "ratelimit", "keep-alive", "upgrade", "x-table-version"] {
        assert_eq!(count(never), 0, "{never}");
    }
    let (lengths, codings) = (count("content-length"), count("transfer-encoding"));
    assert!(lengths + codings <= 1, "one frame");
    let has_no_body = is_head || matches!(read.code, Some(204 | 304));
    if has_no_body {
        assert!(body.is_empty() && !is_cut);
    } else if codings == 0 {
        let length = read.headers.iter().find(|f| f.name.eq_ignore_ascii_case("content-length"));
        let length = std::str::from_utf8(length.expect("a length").value).expect("digits");
        let length: u64 = length.parse().expect("a number");
        assert!(body.len() as u64 == length || is_cut && (body.len() as u64) < length);
    }
}

fn forward_over_http1(answer: &[u8], is_head: bool, part: usize) -> ForwardedResponse<Vec<u8>> {
    let forwarded = forward_response_in_parts::<Http1Header>(answer, is_head, part);
    forwarded
        .map(|(header, body, is_cut, unread)| (header.finish(b"now", false), body, is_cut, unread))
}

/// Forwards a response that arrives in parts of this size and then ends.
fn forward_response_in_parts<H: ClientResponseHeader + Default>(
    answer: &[u8],
    is_head: bool,
    part: usize,
) -> ForwardedResponse<H> {
    let common = CommonHeaders::default();
    let allowed_fields = AllowedResponseFields::OfCheck;
    let context =
        ResponseContext { common_headers: &common, is_head_method: is_head, allowed_fields };
    let (mut arrived, mut header, mut out) = (BytesMut::new(), H::default(), Vec::new());
    let mut parts = answer.chunks(part);
    let mut informational = InformationalResponseCounter::default();
    let response = loop {
        let head = forward_response_head(&mut arrived, &context, &mut informational, &mut header)?;
        if let Some(answer) = head {
            break answer;
        }
        arrived.extend_from_slice(parts.next().ok_or(MalformedResponse::Incomplete)?);
    };
    let mut body = response.body;
    let is_chunked = body.has_chunks();
    let mut is_cut = body.forward_arrived_bytes(&mut arrived, &mut out).is_err();
    for part in parts {
        arrived.extend_from_slice(part);
        is_cut = is_cut || body.forward_arrived_bytes(&mut arrived, &mut out).is_err();
    }
    is_cut = is_cut || body.finish_at_eof(&mut out).is_err();
    let forwarded_body = if is_chunked { join_chunks(&out, is_cut) } else { out };
    // After a truncated response, the number of unread bytes means nothing.
    let unread_bytes = if is_cut { 0 } else { arrived.len() };
    Ok((header, forwarded_body, is_cut, unread_bytes))
}

/// The joined data of all chunks. A last chunk must follow unless the response was truncated.
fn join_chunks(mut chunks: &[u8], is_cut: bool) -> Vec<u8> {
    let mut whole = Vec::new();
    while !chunks.is_empty() {
        let Ok(httparse::Status::Complete((line, size))) = httparse::parse_chunk_size(chunks)
        else {
            panic!("a size");
        };
        let end = line + usize::try_from(size).expect("a size");
        whole.extend_from_slice(&chunks[line..end]);
        assert_eq!(&chunks[end..end + 2], b"\r\n");
        chunks = &chunks[end + 2..];
        if size == 0 {
            assert!(chunks.is_empty() && !is_cut, "nothing follows the last chunk");
            return whole;
        }
    }
    assert!(is_cut, "no end");
    whole
}
