//! The strict parser of a request head (RFC 9112).
//!
//! Before riskgate routes a request, the parser refuses heads that two servers could read
//! differently. The parser changes no bytes.

mod accepted;
mod cookies;
mod fields;
mod limits;
mod lines;
mod list;
mod request_line;

use http::Version;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use pingora::http::RequestHeader;

use crate::model::refusal::Refusal;
pub use accepted::AcceptedTypes;
pub use cookies::{DIVIDED_COOKIES_OVERHEAD_BYTES, join_cookie_fields};
pub(crate) use fields::must_stay_end_to_end;
pub use fields::{
    MAX_CONNECTION_OPTIONS, RequestBodyFraming, RequestFields, bearer_credentials,
    host_without_port, parse_content_length, value_if_single,
};
pub use limits::RequestLimits;
use lines::CrlfLines;
pub use list::{expects_continue, members_of_list};
pub use request_line::{
    BUILTIN_METHODS, RequestLine, RequestLineGuess, is_method_of_no_route, takes_body,
};

/// A complete request head at the front of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'b> {
    /// The length of the head in bytes, including the empty line.
    pub head_length: usize,
    /// Where the body behind the head ends.
    pub body: RequestBodyFraming,
    /// The request line.
    pub request_line: RequestLine<'b>,
    /// The fields that riskgate reads.
    pub fields: RequestFields<'b>,
}

/// Parses the request head at the front of `bytes`. Returns `None` if the head is incomplete.
/// `scanned_length` is the number of bytes in which an earlier call has not found the end of the
/// head. This call searches only behind them and in the last three of them.
pub fn parse_request_head<'b>(
    bytes: &'b [u8],
    scanned_length: usize,
    limits: &RequestLimits,
) -> Result<Option<RequestHead<'b>>, Refusal> {
    // riskgate tolerates one empty line before the request line (RFC 9112 section 2.2).
    let lead = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let block = &bytes[lead..];
    let from = scanned_length.saturating_sub(lead + 3).min(block.len());
    let Some(end) = find_crlf_crlf(block, from) else {
        return check_incomplete_head(block, from, limits).map(|()| None);
    };
    if end + 4 > limits.header_bytes {
        return Err(oversized_head_refusal(block, limits));
    }
    let mut lines = CrlfLines(&block[..end + 2]);
    let line = lines.next_line()?.unwrap_or_default();
    if is_request_line_too_long(line, limits) {
        return Err(Refusal::UriTooLong);
    }
    let request = RequestLine::parse(line, limits)?;
    let mut fields = RequestFields::default();
    while let Some(line) = lines.next_line()? {
        fields.field_count += 1;
        if fields.field_count > limits.header_fields {
            return Err(Refusal::HeadersTooLarge);
        }
        fields.parse_field_line(line)?;
    }
    fields.check_host_framing_and_expect(&request, limits)?;
    let body = fields.parse_body_framing(&request, limits)?;
    request.check_method()?;
    Ok(Some(RequestHead { head_length: lead + end + 4, body, request_line: request, fields }))
}

/// Iterates over the names and values of a head's fields, in their order. The caller has parsed the
/// head before, so this function checks nothing. Names have the case that the client sent.
pub fn iter_parsed_fields(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    let mut lines = CrlfLines(header);
    let lines = std::iter::from_fn(move || lines.next_line().ok().flatten());
    lines.skip_while(|line| line.is_empty()).skip(1).filter_map(fields::split_field)
}

/// Returns the head at the front of `received`, without the bytes behind it. The caller has parsed
/// the head before.
pub fn without_body(received: &[u8]) -> &[u8] {
    let start = received.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    let end = memchr::memmem::find(&received[start..], b"\r\n\r\n");
    end.map_or(received, |end| &received[..start + end + 4])
}

/// Returns the method and the target of a head. The caller has parsed the head before.
pub fn parsed_method_and_target(header: &[u8]) -> (&[u8], &[u8]) {
    let start = header.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    let mut words = header[start..].splitn(3, |byte| *byte == b' ');
    (words.next().unwrap_or_default(), words.next().unwrap_or_default())
}

/// The most bytes behind the target of a request line. The version and a CR need fewer.
const MAX_VERSION_BYTES: usize = 64;

/// Refuses an incomplete head that is too long already, or has a bare line feed or a NUL.
fn check_incomplete_head(
    block: &[u8],
    search_start: usize,
    limits: &RequestLimits,
) -> Result<(), Refusal> {
    if block.len() > limits.header_bytes {
        return Err(oversized_head_refusal(block, limits));
    }
    let line_end = memchr::memmem::find(block, b"\n").unwrap_or(block.len());
    if is_request_line_too_long(&block[..line_end], limits) {
        return Err(Refusal::UriTooLong);
    }
    // No further bytes can make such a head valid, so riskgate doesn't wait for the rest.
    let is_malformed = (search_start..block.len())
        .any(|at| block[at] == b'\n' && (at == 0 || block[at - 1] != b'\r') || block[at] == 0);
    if is_malformed { Err(Refusal::BadRequest) } else { Ok(()) }
}

/// Returns true if a part of the request line is too long. `line` may be incomplete: no further
/// bytes can make it shorter.
fn is_request_line_too_long(line: &[u8], limits: &RequestLimits) -> bool {
    if line.len() <= limits.target_bytes {
        return false;
    }
    let mut parts = line.splitn(3, |byte| *byte == b' ').map(|part| (part, part.len()));
    let mut next = || parts.next().unwrap_or_default();
    let ((_, method_bytes), (target, target_bytes), (_, version_bytes)) = (next(), next(), next());
    method_bytes > limits.target_bytes
        || target_bytes > limits.max_target_bytes(target)
        || version_bytes > MAX_VERSION_BYTES
}

fn oversized_head_refusal(block: &[u8], limits: &RequestLimits) -> Refusal {
    let line_end = memchr::memmem::find(block, b"\n").unwrap_or(block.len());
    if is_request_line_too_long(&block[..line_end], limits) {
        Refusal::UriTooLong
    } else {
        Refusal::HeadersTooLarge
    }
}

/// Returns the position of the `CRLF CRLF` that ends the head, at `search_start` or later. `None`
/// if the head is incomplete.
fn find_crlf_crlf(block: &[u8], search_start: usize) -> Option<usize> {
    let line_ends = memchr::memchr_iter(b'\n', &block[search_start..]).map(|at| search_start + at);
    let mut empty = line_ends.filter(|at| block[..*at].ends_with(b"\r\n\r"));
    empty.next().map(|at| at - 3).filter(|at| *at >= search_start)
}

impl RequestHead<'_> {
    /// Returns true if the fast path can serve the request: it has HTTP/1.1 and a target in origin
    /// form, and [`RequestFields::may_take_fast_path`] is true.
    pub fn may_take_fast_path(&self) -> bool {
        self.request_line.is_http_11
            && self.request_line.target.first() == Some(&b'/')
            && self.fields.may_take_fast_path(self.request_line.method)
    }

    /// Returns true if the client waits for a 100 before it sends the body. A client of HTTP/1.0
    /// knows no 100 (RFC 9110 section 10.1.1).
    pub fn awaits_continue(&self) -> bool {
        self.request_line.is_http_11
            && self.fields.expects_continue
            && self.body != RequestBodyFraming::Length(0)
    }

    /// Returns true if the header says that a body follows, even a body without bytes.
    pub fn announces_body(&self) -> bool {
        self.body != RequestBodyFraming::Length(0) || !self.fields.has_no_content_length()
    }
}

/// Checks the fields of a request whose head Pingora has parsed, in a proxy that mounts the gate:
/// `Connection` may list no field on which riskgate relies, and each server must find the same end
/// of the body. [`parse_request_head`] and [`check_http2_request`] check this as well.
pub fn check_connection_and_framing(request: &RequestHeader) -> Result<(), Refusal> {
    let mut fields = RequestFields::default();
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        for value in request.headers.get_all(&name) {
            fields.add_field(name.as_str().as_bytes(), value.as_bytes())?;
        }
    }
    fields.check_framing_alone(request.version >= Version::HTTP_11)
}

/// Returns the size that the header of an HTTP/2 request would have over HTTP/1.1, in bytes.
fn http1_size(request: &RequestHeader) -> usize {
    let fields = request.headers.iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let line = request.method.as_str().len() + request.raw_path().len();
    let authority = request.uri.authority().map_or(0, |authority| authority.as_str().len());
    let host = if authority > 0 { authority + "host: \r\n".len() } else { 0 };
    line + "  HTTP/1.1\r\n\r\n".len() + host + fields.sum::<usize>()
}

/// Checks an HTTP/2 request by riskgate's rules for HTTP/1.1 requests. The h2 crate has checked the
/// framing and the grammar of the fields, and the caller has joined `Cookie`. The header does not
/// tell whether a body follows. Returns the fields that riskgate reads.
pub fn check_http2_request<'r>(
    request: &'r RequestHeader,
    limits: &RequestLimits,
) -> Result<RequestFields<'r>, Refusal> {
    let (method, target) = (request.method.as_str().as_bytes(), request.raw_path());
    if request.headers.len() > limits.header_fields {
        return Err(Refusal::HeadersTooLarge);
    }
    let authority = request.uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut fields = RequestFields::default();
    fields.host = authority.unwrap_or_default();
    fields.host_count = usize::from(authority.is_some());
    for (name, value) in &request.headers {
        // `Host` may repeat the authority. Pingora has refused a request with another `Host`.
        if !(name == HOST && authority.is_some()) {
            fields.add_field(name.as_str().as_bytes(), value.as_bytes())?;
        }
    }
    let line = RequestLine { method, target, is_http_11: true };
    line.check_target(limits)?;
    if http1_size(request) > limits.header_bytes {
        return Err(Refusal::HeadersTooLarge);
    }
    // HTTP/2 has no transfer codings (RFC 9113 section 8.2.2).
    if request.headers.contains_key(TRANSFER_ENCODING) {
        return Err(Refusal::BadRequest);
    }
    fields.check_host_framing_and_expect(&line, limits)?;
    // If a body has another length than announced, the h2 crate resets the stream.
    fields.parse_body_framing(&line, limits)?;
    line.check_method()?;
    Ok(fields)
}

#[cfg(test)]
mod tests;
