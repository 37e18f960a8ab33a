//! The strict parser of a request head (RFC 9112).
//!
//! It refuses every head that two parsers could read differently, before riskgate routes the
//! request. It reads bytes only and changes none.

mod byte_tables;
mod fields;
mod limits;
mod lines;
mod request_line;

use http::header::HOST;
use pingora::http::RequestHeader;

use crate::model::refusal::Refusal;
pub use fields::{MAX_CONNECTION_OPTIONS, RequestFields, list_members};
pub use limits::RequestLimits;
use lines::CrlfLines;
pub use request_line::{BUILTIN_METHODS, RequestLine};

/// A complete request head at the front of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'b> {
    /// The length of the head in bytes, including the empty line.
    pub length: usize,
    /// The length of the body that follows, in bytes.
    pub body_length: usize,
    /// The request line.
    pub request_line: RequestLine<'b>,
    /// The fields that riskgate reads.
    pub fields: RequestFields<'b>,
}

/// Parses the request head at the front of `bytes`. Returns `None` if it is incomplete. The first
/// `scanned` bytes were searched before and don't contain its end, so a head that trickles in is
/// not searched again and again.
pub fn parse_request_head<'b>(
    bytes: &'b [u8],
    scanned: usize,
    sizes: &RequestLimits,
) -> Result<Option<RequestHead<'b>>, Refusal> {
    // An empty line before the request line is tolerated (RFC 9112 section 2.2).
    let lead = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let block = &bytes[lead..];
    let from = scanned.saturating_sub(lead + 3).min(block.len());
    let Some(end) = find_head_end(block, from) else {
        return check_incomplete_head(block, from, sizes).map(|()| None);
    };
    if end + 4 > sizes.header_bytes {
        return Err(refuse_oversized_head(block, sizes));
    }
    let mut lines = CrlfLines(&block[..end + 2]);
    let line = lines.next_line()?.unwrap_or_default();
    if is_request_line_too_long(line.len() + 1, sizes) {
        return Err(Refusal::UriTooLong);
    }
    let request = RequestLine::parse(line, sizes)?;
    let mut fields = RequestFields::default();
    while let Some(line) = lines.next_line()? {
        fields.field_count += 1;
        if fields.field_count > sizes.header_fields {
            return Err(Refusal::HeadersTooLarge);
        }
        fields.parse_line(line)?;
    }
    fields.check_host_framing_and_expect(&request)?;
    let body = fields.body_length(&request, sizes)?;
    Ok(Some(RequestHead {
        length: lead + end + 4,
        body_length: body,
        request_line: request,
        fields,
    }))
}

/// Iterates over the names and values of a head that was parsed before, in their order. Names keep
/// the case that the client sent.
pub fn iter_fields(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    let mut lines = CrlfLines(header);
    let lines = std::iter::from_fn(move || lines.next_line().ok().flatten());
    lines.skip_while(|line| line.is_empty()).skip(1).filter_map(fields::split_field)
}

/// Refuses an incomplete head that no further bytes can make valid.
fn check_incomplete_head(block: &[u8], from: usize, sizes: &RequestLimits) -> Result<(), Refusal> {
    if block.len() > sizes.header_bytes {
        return Err(refuse_oversized_head(block, sizes));
    }
    let line_end = memchr::memmem::find(block, b"\n").unwrap_or(block.len());
    if is_request_line_too_long(line_end, sizes) {
        return Err(refuse_oversized_head(block, sizes));
    }
    // A bare line feed or a NUL makes the head invalid, so riskgate doesn't wait for the rest.
    let is_malformed = (from..block.len())
        .any(|at| block[at] == b'\n' && (at == 0 || block[at - 1] != b'\r') || block[at] == 0);
    if is_malformed { Err(Refusal::BadRequest) } else { Ok(()) }
}

/// Returns true if a request line of this length (with its CR, complete or not) is too long. Beside
/// the target, 64 bytes are allowed: more than the method, two spaces and the version need.
fn is_request_line_too_long(length: usize, sizes: &RequestLimits) -> bool {
    length > sizes.target_bytes + 64
}

fn refuse_oversized_head(block: &[u8], sizes: &RequestLimits) -> Refusal {
    let line_end = memchr::memmem::find(block, b"\n").unwrap_or(block.len());
    if is_request_line_too_long(line_end, sizes) {
        Refusal::UriTooLong
    } else {
        Refusal::HeadersTooLarge
    }
}

/// Returns the start of the `CRLF CRLF` that ends the head, at `from` or later.
fn find_head_end(block: &[u8], from: usize) -> Option<usize> {
    let line_ends = memchr::memchr_iter(b'\n', &block[from..]).map(|at| from + at);
    let mut empty = line_ends.filter(|at| block[..*at].ends_with(b"\r\n\r"));
    empty.next().map(|at| at - 3).filter(|at| *at >= from)
}

impl RequestHead<'_> {
    /// Returns true if the fast path can serve the request: GET or HEAD of HTTP/1.1 for a path,
    /// without a body, and without fields that ask for more than a response.
    pub fn is_plain(&self) -> bool {
        self.request_line.is_http_11
            && matches!(self.request_line.method, b"GET" | b"HEAD")
            && self.request_line.target.first() == Some(&b'/')
            && self.fields.is_plain()
    }
}

/// Checks an HTTP/2 request against the rules for HTTP/1.1. The h2 crate has checked its framing
/// and the grammar of its fields. `has_body` is true if a body follows the header.
pub fn check_http2_request(
    request: &RequestHeader,
    has_body: bool,
    sizes: &RequestLimits,
) -> Result<(), Refusal> {
    let (method, target) = (request.method.as_str().as_bytes(), request.raw_path());
    if request.headers.len() > sizes.header_fields {
        return Err(Refusal::HeadersTooLarge);
    }
    let authority = request.uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut fields = RequestFields::default();
    fields.host = authority.unwrap_or_default();
    fields.host_count = usize::from(authority.is_some());
    for (name, value) in &request.headers {
        // Host may repeat the authority; a different Host was refused when the request was decoded.
        if !(name == HOST && authority.is_some()) {
            fields.add_field(name.as_str().as_bytes(), value.as_bytes())?;
        }
    }
    let line = RequestLine { method, target, is_http_11: true };
    line.check_target(sizes)?;
    fields.check_host_framing_and_expect(&line)?;
    let body_length = fields.body_length(&line, sizes)?;
    if has_body && body_length == 0 { Err(Refusal::BadRequest) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
