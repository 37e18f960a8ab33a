//! The grammar of a request header (RFC 9112), read strictly.
//!
//! Whatever two readers could understand differently is refused here, before anything routes on
//! it. It looks at bytes only, and changes none.

mod byte_tables;
mod fields;
mod limits;
mod lines;
mod request_line;

use http::header::HOST;
use pingora_http::RequestHeader;

use crate::model::refusal::Refusal;
pub use fields::{MAX_CONNECTION_OPTIONS, RequestFields, list_members};
pub use limits::RequestLimits;
use lines::CrlfLines;
pub use request_line::{BUILTIN_METHODS, RequestLine};

/// A complete header at the front of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'b> {
    /// Its bytes, the empty line included.
    pub length: usize,
    /// Bytes of body that follow it.
    pub body_length: usize,
    /// Its first line.
    pub request_line: RequestLine<'b>,
    /// What is known of its fields.
    pub fields: RequestFields<'b>,
}

/// Looks for a header at the front of `bytes`: complete, not yet, or refused. The first `scanned`
/// bytes were looked at before and did not end one, so that a header that trickles in is not read
/// over and over.
pub fn parse_request_head<'b>(
    bytes: &'b [u8],
    scanned: usize,
    sizes: &RequestLimits,
) -> Result<Option<RequestHead<'b>>, Refusal> {
    // An empty line before a request line is to be tolerated (RFC 9112 section 2.2).
    let lead = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let block = &bytes[lead..];
    let from = scanned.saturating_sub(lead + 3).min(block.len());
    let Some(end) = find_head_end(block, from) else {
        return check_incomplete(block, from, sizes).map(|()| None);
    };
    if end + 4 > sizes.header_bytes {
        return Err(size_refusal(block, sizes));
    }
    let mut lines = CrlfLines(&block[..end + 2]);
    let line = lines.next_line()?.unwrap_or_default();
    if is_request_line_too_long(line.len() + 1, sizes) {
        return Err(Refusal::UriTooLong);
    }
    let request = RequestLine::parse(line, sizes)?;
    let mut fields = RequestFields::default();
    while let Some(line) = lines.next_line()? {
        fields.count += 1;
        if fields.count > sizes.header_fields {
            return Err(Refusal::HeadersTooLarge);
        }
        fields.parse_line(line)?;
    }
    fields.check_host_and_framing(&request)?;
    let body = fields.body_length(&request, sizes)?;
    Ok(Some(RequestHead {
        length: lead + end + 4,
        body_length: body,
        request_line: request,
        fields,
    }))
}

/// The fields of a header that was read before, in their order: names as they came, and values.
pub fn iter_fields(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    let mut lines = CrlfLines(header);
    let lines = std::iter::from_fn(move || lines.next_line().ok().flatten());
    lines.skip_while(|line| line.is_empty()).skip(1).filter_map(fields::split_field)
}

/// What is wrong already with a header that is not complete.
fn check_incomplete(block: &[u8], from: usize, sizes: &RequestLimits) -> Result<(), Refusal> {
    if block.len() > sizes.header_bytes {
        return Err(size_refusal(block, sizes));
    }
    let line_end = memchr::memmem::find(block, b"\n").unwrap_or(block.len());
    if is_request_line_too_long(line_end, sizes) {
        return Err(size_refusal(block, sizes));
    }
    // A header that can't become right is not waited for: bare line feeds never end it.
    let bare = (from..block.len())
        .any(|at| block[at] == b'\n' && (at == 0 || block[at - 1] != b'\r') || block[at] == 0);
    if bare { Err(Refusal::BadRequest) } else { Ok(()) }
}

/// Whether a request line with its CR is too long, whether or not the rest has come: beside the
/// target, a method, two spaces and a version are far shorter than this.
fn is_request_line_too_long(length: usize, sizes: &RequestLimits) -> bool {
    length > sizes.target_bytes + 64
}

fn size_refusal(block: &[u8], sizes: &RequestLimits) -> Refusal {
    let line = memchr::memmem::find(block, b"\n").unwrap_or(block.len());
    if is_request_line_too_long(line, sizes) {
        Refusal::UriTooLong
    } else {
        Refusal::HeadersTooLarge
    }
}

/// Where the empty line begins that ends a header, none before `from`.
fn find_head_end(block: &[u8], from: usize) -> Option<usize> {
    let line_ends = memchr::memchr_iter(b'\n', &block[from..]).map(|at| from + at);
    let mut empty = line_ends.filter(|at| block[..*at].ends_with(b"\r\n\r"));
    empty.next().map(|at| at - 3).filter(|at| *at >= from)
}

impl RequestHead<'_> {
    /// Whether this is a request of the plainest shape: GET or HEAD of HTTP/1.1 for a path, with
    /// nothing behind its header and nothing in it that asks for more than an answer.
    pub fn is_plain(&self) -> bool {
        self.request_line.is_http_11
            && matches!(self.request_line.method, b"GET" | b"HEAD")
            && self.request_line.target.first() == Some(&b'/')
            && self.fields.is_cleartext()
    }
}

/// Holds a request of HTTP/2 to what one of HTTP/1.1 must hold. Its framing and the grammar of
/// its fields were checked where it was decoded; `has_body` says that more than a header follows.
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
        // The same authority may stand in both places; another was refused before.
        if !(name == HOST && authority.is_some()) {
            fields.add_field(name.as_str().as_bytes(), value.as_bytes())?;
        }
    }
    let line = RequestLine { method, target, is_http_11: true };
    line.check_target(sizes)?;
    fields.check_host_and_framing(&line)?;
    let announced = fields.body_length(&line, sizes)?;
    if has_body && announced == 0 { Err(Refusal::BadRequest) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
