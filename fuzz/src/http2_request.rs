//! riskgate accepts an HTTP/2 request exactly when it accepts the equivalent HTTP/1.1 request.

use http::header::{HOST, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::uri::{Authority, Parts, PathAndQuery, Scheme, Uri};
use http::{Method, Request};
use riskgate::message::request_head::{RequestLimits, check_http2_request, parse_request_head};
use riskgate::model::refusal::Refusal;
use riskgate::pingora::http::RequestHeader;

use super::{DEFAULT_LIMITS, SMALL_LIMITS, split_first_line};

/// Panics if a promise is broken for this input.
pub fn check_input(data: &[u8]) {
    let Some(request) = build_http2_request(data) else { return };
    let text = format_as_http1(&request);
    for sizes in [&DEFAULT_LIMITS, &SMALL_LIMITS] {
        let as_http1 = parse_request_head(&text, 0, sizes);
        let as_http2 = check_http2_request(&request, sizes).map(drop);
        assert_results_agree(&request, &text, sizes, (&as_http1, &as_http2));
    }
}

type Http1AndHttp2Results<'v> = (
    &'v Result<Option<riskgate::message::request_head::RequestHead<'v>>, Refusal>,
    &'v Result<(), Refusal>,
);

fn assert_results_agree(
    request: &RequestHeader,
    text: &[u8],
    limits: &RequestLimits,
    results: Http1AndHttp2Results<'_>,
) {
    let shown = || format!("{results:?}: {}", String::from_utf8_lossy(text));
    match results {
        (Ok(Some(head)), accepted) => {
            assert_eq!(head.head_length, text.len(), "{}", shown());
            // HTTP/2 has no transfer codings.
            let is_refused = request.headers.contains_key(TRANSFER_ENCODING);
            assert_eq!(accepted.is_ok(), !is_refused, "{}", shown());
        }
        (Ok(None), _) => panic!("an incomplete header: {}", shown()),
        (Err(refusal), Ok(())) => {
            // riskgate may refuse the HTTP/1.1 form alone, for its size. In HTTP/1.1 the authority
            // is one more field, and the request line limits the method too. In HTTP/2 the decoder
            // limits the field list.
            let fields = request.headers.len() + usize::from(!request.headers.contains_key(HOST));
            let is_allowed = match refusal {
                Refusal::HeadersTooLarge => {
                    fields > limits.header_fields || text.len() > limits.header_bytes
                }
                Refusal::UriTooLong => request.method.as_str().len() > limits.target_bytes,
                _ => false,
            };
            assert!(is_allowed, "{}", shown());
        }
        (Err(_), Err(_)) => {}
    }
}

/// Builds the request as the HTTP/2 decoder delivers it: the first input line holds method, path
/// and authority, each further line one field. None if the decoder would refuse the request.
fn build_http2_request(data: &[u8]) -> Option<RequestHeader> {
    let (line, fields) = split_first_line(data);
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let method = Method::from_bytes(words.next()?).ok()?;
    let mut parts = Parts::default();
    let path = PathAndQuery::try_from(words.next()?).ok()?;
    parts.authority = words.next().map(Authority::try_from).transpose().ok()?;
    if method != Method::CONNECT {
        parts.path_and_query = Some(path);
        // A request without an authority is dropped.
        parts.scheme = parts.authority.is_some().then_some(Scheme::HTTPS);
    }
    let authority = parts.authority.clone();
    let request = Request::builder().method(method).uri(Uri::from_parts(parts).ok()?);
    let mut request = request.body(()).ok()?;
    for field in fields.split(|byte| *byte == b'\n').filter(|field| !field.is_empty()) {
        let colon = field.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&field[..colon]).ok()?;
        let value = HeaderValue::from_bytes(trim_blanks(&field[colon + 1..])).ok()?;
        // The decoder accepts a Host field only if it repeats the authority.
        let has_host_field = request.headers().contains_key(HOST);
        let repeats_authority =
            |authority: &Authority| *authority.as_str() == value && !has_host_field;
        if name == HOST && !authority.as_ref().is_none_or(repeats_authority) {
            return None;
        }
        request.headers_mut().append(name, value);
    }
    Some(request.into_parts().0.into())
}

/// HTTP/2 allows no blanks around a value (RFC 9113 section 8.2.1).
fn trim_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn format_as_http1(request: &RequestHeader) -> Vec<u8> {
    let mut text = [request.method.as_str().as_bytes(), b" ", request.raw_path()].concat();
    text.extend_from_slice(b" HTTP/1.1\r\n");
    let authority = request.uri.authority();
    if let Some(authority) = authority {
        text.extend_from_slice(format!("Host: {authority}\r\n").as_bytes());
    }
    for (name, value) in &request.headers {
        if name != HOST || authority.is_none() {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}
