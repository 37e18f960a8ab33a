//! riskgate parses a request header the same in one part or in many, and as `httparse` does.

use riskgate::message::request_head::{
    RequestBodyFraming, RequestHead, RequestLimits, parse_request_head,
};
use riskgate::model::refusal::Refusal;

use super::{DEFAULT_LIMITS, SMALL_LIMITS};

/// Panics if a promise is broken for this input.
pub fn check_input(bytes: &[u8]) {
    for sizes in [&DEFAULT_LIMITS, &SMALL_LIMITS] {
        let whole = parse_request_head(bytes, 0, sizes);
        for step in [1, 7] {
            assert_same_in_parts(bytes, step, &whole, sizes);
        }
        if let Ok(Some(head)) = whole {
            assert_httparse_agrees(&bytes[..head.head_length], head, sizes);
            let more = [bytes, b"\r\n\0GET / HTTP/1.1"].concat();
            assert_eq!(parse_request_head(&more, 0, sizes), whole, "later bytes change the result");
        }
    }
}

/// Parses in parts of `step` bytes, as the connection handler does: after each part, it parses all
/// bytes so far, and passes the number of bytes that it has scanned before. Asserts that the result
/// is the same as `whole`.
fn assert_same_in_parts(
    bytes: &[u8],
    step: usize,
    whole: &Result<Option<RequestHead>, Refusal>,
    sizes: &RequestLimits,
) {
    let mut scanned = 0;
    let mut end = 0;
    let in_parts = loop {
        match parse_request_head(&bytes[..end], scanned, sizes) {
            Ok(None) if end < bytes.len() => {}
            verdict => break verdict,
        }
        scanned = end;
        end = (end + step).min(bytes.len());
    };
    match (whole, &in_parts) {
        // If a header has two faults, the fault that arrives first may be reported.
        (Err(_), Err(_)) => {}
        _ => assert_eq!(*whole, in_parts, "in parts of {step}"),
    }
}

fn is_within_limit(body: RequestBodyFraming, sizes: &RequestLimits) -> bool {
    match body {
        RequestBodyFraming::Length(length) => length <= sizes.body_bytes,
        RequestBodyFraming::Chunked => true,
    }
}

/// An accepted header has one meaning: `httparse`, which Pingora uses, finds the same request.
fn assert_httparse_agrees(header: &[u8], head: RequestHead, sizes: &RequestLimits) {
    assert!(header.len() <= sizes.header_bytes + 2 && is_within_limit(head.body, sizes));
    assert!(header.ends_with(b"\r\n\r\n") && !header.contains(&0));
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(header).expect("a header that httparse accepts");
    assert_eq!(parsed, httparse::Status::Complete(header.len()), "httparse finds another end");
    let line = header.split(|byte| *byte == b'\n').find(|line| *line != b"\r").unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| matches!(byte, b' ' | b'\r')).collect();
    assert_eq!(request.method.map(str::as_bytes), words.first().copied());
    assert_eq!(request.path.map(str::as_bytes), words.get(1).copied());
    // Only on riskgate's own paths, such as this one, a target has a limit of its own.
    let has_limit = |target: &[u8]| !target.starts_with(b"/") || target.starts_with(b"/v1/usage?");
    assert!(words[1].len() <= sizes.target_bytes || !has_limit(words[1]));
    let values = |name: &str| -> Vec<&[u8]> {
        let matching = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        matching.map(|field| field.value).collect()
    };
    assert!(request.headers.len() <= sizes.header_fields);
    assert!(values("host").len() <= 1);
    assert!(values("host").len() == 1 || request.version == Some(0), "HTTP/1.1 without a host");
    match (&values("content-length")[..], &values("transfer-encoding")[..]) {
        ([], []) => assert_eq!(head.body, RequestBodyFraming::Length(0)),
        ([value], []) => {
            let text = std::str::from_utf8(value).expect("digits").trim();
            let length = text.parse().map(RequestBodyFraming::Length);
            assert_eq!(length, Ok(head.body), "httparse finds another length");
        }
        ([], [coding]) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked") && request.version == Some(1));
            assert_eq!(head.body, RequestBodyFraming::Chunked);
        }
        _ => panic!("two ways to frame a body"),
    }
    assert!(!matches!(request.method, Some("CONNECT" | "TRACE")));
}
