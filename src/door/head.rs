//! The grammar of a request header (RFC 9112), read strictly.
//!
//! Whatever two readers could understand differently is refused here, before anything routes on
//! it. It looks at bytes only, and changes none.

use http::header::HOST;
use http::uri::PathAndQuery;
use pingora_http::RequestHeader;

use crate::refusal::Refusal;

/// Sizes of what comes in.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Bytes of a whole header block, request line included.
    pub header_bytes: usize,
    /// Fields of a header block.
    pub header_fields: usize,
    /// Bytes of a request target.
    pub target_bytes: usize,
    /// Bytes of a body, on prefixes that take one.
    pub body_bytes: usize,
}

/// A complete header at the front of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its bytes, the empty line included.
    pub length: usize,
    /// Bytes of body that follow it.
    pub body: usize,
}

/// Looks for a header at the front of `bytes`: complete, not yet, or refused. The first `searched`
/// bytes were looked at before and did not end one, so that a header that trickles in is not read
/// over and over.
pub fn read_head(bytes: &[u8], searched: usize, sizes: &Sizes) -> Result<Option<Head>, Refusal> {
    // An empty line before a request line is to be tolerated (RFC 9112 section 2.2).
    let lead = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let block = &bytes[lead..];
    let from = searched.saturating_sub(lead + 3).min(block.len());
    let Some(end) = find(&block[from..], b"\r\n\r\n") else {
        return incomplete(block, from, sizes).map(|()| None);
    };
    let end = from + end;
    if end + 4 > sizes.header_bytes {
        return Err(too_large(block, sizes));
    }
    let mut lines = split_lines(&block[..end])?;
    let line = lines.next().unwrap_or_default();
    if is_long_line(line.len() + 1, sizes) {
        return Err(Refusal::UriTooLong);
    }
    let request = RequestLine::parse(line, sizes)?;
    let mut fields = Fields::default();
    for line in lines {
        fields.count += 1;
        if fields.count > sizes.header_fields {
            return Err(Refusal::HeadersTooLarge);
        }
        fields.read(line)?;
    }
    fields.check(&request)?;
    let body = fields.body(&request, sizes)?;
    Ok(Some(Head { length: lead + end + 4, body }))
}

/// What is wrong already with a header that is not complete.
fn incomplete(block: &[u8], from: usize, sizes: &Sizes) -> Result<(), Refusal> {
    if block.len() > sizes.header_bytes {
        return Err(too_large(block, sizes));
    }
    let line_end = find(block, b"\n").unwrap_or(block.len());
    if is_long_line(line_end, sizes) {
        return Err(too_large(block, sizes));
    }
    // A header that can't become right is not waited for: bare line feeds never end it.
    let bare = (from..block.len())
        .any(|at| block[at] == b'\n' && (at == 0 || block[at - 1] != b'\r') || block[at] == 0);
    if bare { Err(Refusal::BadRequest) } else { Ok(()) }
}

/// Whether a request line with its CR is too long, whether or not the rest has come: beside the
/// target, a method, two spaces and a version are far shorter than this.
fn is_long_line(length: usize, sizes: &Sizes) -> bool {
    length > sizes.target_bytes + 64
}

fn too_large(block: &[u8], sizes: &Sizes) -> Refusal {
    let line = find(block, b"\r\n").unwrap_or(block.len());
    if line > sizes.target_bytes + 64 { Refusal::UriTooLong } else { Refusal::HeadersTooLarge }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// Lines between CRLFs; a CR or LF anywhere else is refused.
fn split_lines(block: &[u8]) -> Result<impl Iterator<Item = &[u8]>, Refusal> {
    for (at, byte) in block.iter().enumerate() {
        let alone = match byte {
            b'\r' => block.get(at + 1) != Some(&b'\n'),
            b'\n' => at == 0 || block[at - 1] != b'\r',
            _ => false,
        };
        if alone {
            return Err(Refusal::BadRequest);
        }
    }
    Ok(block.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)))
}

struct RequestLine<'b> {
    method: &'b [u8],
    target: &'b [u8],
    is_http_11: bool,
}

impl<'b> RequestLine<'b> {
    fn parse(line: &'b [u8], sizes: &Sizes) -> Result<RequestLine<'b>, Refusal> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Refusal::BadRequest);
        };
        if method.is_empty() || !method.iter().all(|byte| is_token_byte(*byte)) {
            return Err(Refusal::BadRequest);
        }
        let is_http_11 = match version {
            b"HTTP/1.1" => Ok(true),
            b"HTTP/1.0" => Ok(false),
            _ => Err(Refusal::BadRequest),
        };
        let line = RequestLine { method, target, is_http_11: is_http_11 == Ok(true) };
        line.check(sizes).and_then(|()| is_http_11.map(|_| line))
    }

    fn check(&self, sizes: &Sizes) -> Result<(), Refusal> {
        if self.target.len() > sizes.target_bytes {
            return Err(Refusal::UriTooLong);
        }
        // UTF-8 passes: what it means is decided where the segment is decoded.
        let bad = |byte: &u8| byte.is_ascii_control() || *byte == b'#';
        let is_text = std::str::from_utf8(self.target).is_ok();
        // What Pingora's own parser refuses would get an empty 400 of its own.
        let is_answered_here = matches!(self.method, b"CONNECT" | b"TRACE");
        let is_target = is_answered_here || is_pingora_target(self.target);
        let is_empty = self.target.is_empty() && !is_answered_here;
        if is_empty || !is_text || !is_target || self.target.iter().any(bad) {
            return Err(Refusal::BadRequest);
        }
        if is_answered_here {
            return Err(Refusal::MethodNotAllowed { allow: crate::route::METHODS });
        }
        Ok(())
    }
}

#[derive(Default)]
struct Fields<'b> {
    count: usize,
    hosts: usize,
    host: &'b [u8],
    content_lengths: usize,
    content_length: &'b [u8],
    transfer_encoding: bool,
}

impl<'b> Fields<'b> {
    fn read(&mut self, line: &'b [u8]) -> Result<(), Refusal> {
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Refusal::BadRequest)?;
        let (name, value) = (&line[..colon], without_blanks(&line[colon + 1..]));
        // This refuses folded lines and space before the colon too.
        if name.is_empty() || !name.iter().all(|byte| is_token_byte(*byte)) {
            return Err(Refusal::BadRequest);
        }
        self.take(name, value)
    }

    fn take(&mut self, name: &[u8], value: &'b [u8]) -> Result<(), Refusal> {
        if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(Refusal::BadRequest);
        }
        if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
            self.host = value;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            self.content_lengths += 1;
            self.content_length = value;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.transfer_encoding = true;
        } else if name.eq_ignore_ascii_case(b"connection") && nominates_ours(value) {
            return Err(Refusal::BadRequest);
        }
        Ok(())
    }

    fn check(&self, request: &RequestLine<'_>) -> Result<(), Refusal> {
        let enough = if request.is_http_11 { self.hosts == 1 } else { self.hosts <= 1 };
        let valid = self.hosts == 0 || is_authority(self.host);
        let same = match authority_of(request.target) {
            Some(authority) => authority.eq_ignore_ascii_case(self.host),
            None => true,
        };
        let unframed = !self.transfer_encoding && self.content_lengths <= 1;
        if enough && valid && same && unframed { Ok(()) } else { Err(Refusal::BadRequest) }
    }

    /// The length of the body. Methods that carry none may not announce one; that removes request
    /// smuggling as a class.
    fn body(&self, request: &RequestLine<'_>, sizes: &Sizes) -> Result<usize, Refusal> {
        if self.content_lengths == 0 {
            return Ok(0);
        }
        let digits = self.content_length;
        if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
            return Err(Refusal::BadRequest);
        }
        let value = digits.iter().fold(0usize, |sum, digit| {
            sum.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
        });
        let takes_body = matches!(request.method, b"POST" | b"PUT" | b"PATCH");
        if value > 0 && (!takes_body || value > sizes.body_bytes) {
            return Err(Refusal::BadRequest);
        }
        Ok(value)
    }
}

/// Holds a request of HTTP/2 to what one of HTTP/1.1 must hold. Its framing and the grammar of
/// its fields were checked where it was decoded; `has_body` says that more than a header follows.
pub fn check_http2(request: &RequestHeader, has_body: bool, sizes: &Sizes) -> Result<(), Refusal> {
    let (method, target) = (request.method.as_str().as_bytes(), request.raw_path());
    if request.headers.len() > sizes.header_fields {
        return Err(Refusal::HeadersTooLarge);
    }
    let authority = request.uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut fields = Fields { host: authority.unwrap_or_default(), ..Fields::default() };
    fields.hosts = usize::from(authority.is_some());
    for (name, value) in &request.headers {
        // The same authority may stand in both places; another was refused before.
        if !(name == HOST && authority.is_some()) {
            fields.take(name.as_str().as_bytes(), value.as_bytes())?;
        }
    }
    let line = RequestLine { method, target, is_http_11: true };
    line.check(sizes)?;
    fields.check(&line)?;
    let announced = fields.body(&line, sizes)?;
    if has_body && announced == 0 { Err(Refusal::BadRequest) } else { Ok(()) }
}

/// A field's value without the blanks around it (RFC 9110 section 5.5). No other character is one,
/// though ASCII calls a form feed white space.
fn without_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Headers that we rely on must not be declared hop-by-hop by the caller.
fn nominates_ours(value: &[u8]) -> bool {
    const OURS: [&[u8]; 10] = [
        b"authorization",
        b"host",
        b"origin",
        b"content-length",
        b"transfer-encoding",
        b"x-request-id",
        b"traceparent",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
    ];
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|token| {
        OURS.iter().any(|ours| token.eq_ignore_ascii_case(ours))
            || token.len() >= 10 && token[..10].eq_ignore_ascii_case(b"x-riskgate")
    })
}

/// The authority of an absolute-form target.
fn authority_of(target: &[u8]) -> Option<&[u8]> {
    let start = find(target, b"://")? + 3;
    if target.starts_with(b"/") {
        return None;
    }
    let rest = &target[start..];
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    Some(&rest[..end])
}

fn is_authority(host: &[u8]) -> bool {
    let byte = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']' | b'~')
    };
    let port = match host.iter().rposition(|byte| *byte == b':') {
        // The last colon of an IPv6 address stands inside of its brackets.
        Some(colon) if !host.ends_with(b"]") => &host[colon + 1..],
        _ => b"",
    };
    let port = std::str::from_utf8(port).unwrap_or("-");
    let good_port = port.is_empty() || port.parse::<u16>().is_ok();
    !host.is_empty() && host.len() <= 261 && host.iter().all(byte) && good_port
}

/// Whether Pingora takes this target, also one that does not begin with a slash.
fn is_pingora_target(target: &[u8]) -> bool {
    match target.first() {
        Some(b'/') => PathAndQuery::try_from(target).is_ok(),
        _ => PathAndQuery::try_from([b"/", target].concat().as_slice()).is_ok(),
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes {
        header_bytes: 16_384,
        header_fields: 64,
        target_bytes: 2_048,
        body_bytes: 1_048_576,
    };

    fn status(text: &str) -> Result<Option<Head>, u16> {
        read_head(text.as_bytes(), 0, &SIZES).map_err(|refusal| refusal.status())
    }

    #[test]
    fn a_plain_request_is_taken_and_nothing_behind_it() {
        let text = "GET /v1/usage HTTP/1.1\r\nHost: a\r\n\r\n";
        let head = Head { length: text.len(), body: 0 };
        assert_eq!(status(text), Ok(Some(head)));
        assert_eq!(status(&format!("{text}{text}")), Ok(Some(head)));
        assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), Ok(Some(Head { length: 18, body: 0 })));
        for cut in 0..text.len() {
            assert_eq!(status(&text[..cut]), Ok(None), "{cut}");
            let whole = read_head(text.as_bytes(), cut, &SIZES);
            assert!(matches!(whole, Ok(Some(found)) if found == head), "{cut}");
        }
        let post = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(status(post), Ok(Some(Head { length: post.len() - 5, body: 5 })));
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        let host = "Host: a\r\n";
        for text in [
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            format!("GET / HTTP/1.1\r\n{host}{host}\r\n"),
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost:\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n".to_owned(),
            format!("GET / HTTP/1.1\n{host}\r\n"),
            "GET / HTTP/1.1\r\nHost: a\n\r\n".to_owned(),
            format!("GET / HTTP/1.1\r\n{host}A: b\rc\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}A: b\r\n c\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}A : b\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}: b\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}no colon\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}A: b\0\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}A: b\u{c}\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}A:\u{c} b\r\n\r\n"),
            format!("GET  / HTTP/1.1\r\n{host}\r\n"),
            format!("GET / x HTTP/1.1\r\n{host}\r\n"),
            format!("GET /\t HTTP/1.1\r\n{host}\r\n"),
            format!("GET /\0 HTTP/1.1\r\n{host}\r\n"),
            format!("GET /#a HTTP/1.1\r\n{host}\r\n"),
            format!("GET /a`b HTTP/1.1\r\n{host}\r\n"),
            format!("GET /<a> HTTP/1.1\r\n{host}\r\n"),
            format!("GET / HTTP/2.0\r\n{host}\r\n"),
            format!("GET / http/1.1\r\n{host}\r\n"),
            format!("G(T / HTTP/1.1\r\n{host}\r\n"),
            format!("GET /\r\n{host}\r\n"),
            format!("GET / HTTP/1.1\r\n{host}Content-Length: 1\r\n\r\n"),
            format!("POST / HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 1\r\n\r\n"),
            format!("POST / HTTP/1.1\r\n{host}Content-Length: +1\r\n\r\n"),
            format!("POST / HTTP/1.1\r\n{host}Content-Length: 1, 1\r\n\r\n"),
            format!("POST / HTTP/1.1\r\n{host}Content-Length: 99999999999999999999\r\n\r\n"),
            format!("POST / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: identity\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}Connection: close, Authorization\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}Connection: x-riskgate-account\r\n\r\n"),
            "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        ] {
            assert_eq!(status(&text), Err(400), "{text:?}");
        }
        let no_text = b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(read_head(no_text, 0, &SIZES), Err(Refusal::BadRequest));
        assert_eq!(status(&format!("CONNECT a:1 HTTP/1.1\r\n{host}\r\n")), Err(405));
        assert_eq!(status(&format!("TRACE / HTTP/1.1\r\n{host}\r\n")), Err(405));
    }

    #[test]
    fn sizes_have_their_own_answers() {
        let long = "a".repeat(2048);
        assert_eq!(status(&format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")), Err(414));
        assert_eq!(status(&format!("GET /{}", "a".repeat(3000))), Err(414));
        let method = "M".repeat(200);
        let text = format!("{method} /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(2_000));
        assert_eq!(status(&text), Err(414), "whole");
        assert_eq!(status(&text[..2_120]), Err(414), "as it comes");
        let fields = "A: b\r\n".repeat(63);
        assert!(status(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).is_ok());
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n{fields}\r\n")), Err(431));
        let big = "x".repeat(17_000);
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: a\r\nA: {big}\r\n\r\n")), Err(431));
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: a\r\nA: {big}")), Err(431));
    }
}
