//! The grammar of a request header (RFC 9112), read strictly.
//!
//! Whatever two readers could understand differently is refused here, before anything routes on
//! it. It looks at bytes only, and changes none.

mod fields;

use http::header::HOST;
use http::uri::PathAndQuery;
use pingora_http::RequestHeader;
use smol_str::SmolStr;

use crate::model::refusal::Refusal;
use fields::is_token_byte;
pub use fields::{Fields, MOST_CONNECTION_OPTIONS, members};

/// Methods of the routes that riskgate serves itself, as `Allow` and CORS name them.
pub const METHODS: SmolStr = SmolStr::new_static("GET, HEAD, OPTIONS");
/// What all readers take in the target of a request for a path.
const USUAL_BYTES: [bool; 256] = fields::letters_digits_and(b"/-._~%@+?=&");

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
pub struct Head<'b> {
    /// Its bytes, the empty line included.
    pub length: usize,
    /// Bytes of body that follow it.
    pub body: usize,
    /// Its first line.
    pub line: RequestLine<'b>,
    /// What is known of its fields.
    pub fields: Fields<'b>,
}

/// Looks for a header at the front of `bytes`: complete, not yet, or refused. The first `searched`
/// bytes were looked at before and did not end one, so that a header that trickles in is not read
/// over and over.
pub fn read_head<'b>(
    bytes: &'b [u8],
    searched: usize,
    sizes: &Sizes,
) -> Result<Option<Head<'b>>, Refusal> {
    // An empty line before a request line is to be tolerated (RFC 9112 section 2.2).
    let lead = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let block = &bytes[lead..];
    let from = searched.saturating_sub(lead + 3).min(block.len());
    let Some(end) = find_end(block, from) else {
        return incomplete(block, from, sizes).map(|()| None);
    };
    if end + 4 > sizes.header_bytes {
        return Err(too_large(block, sizes));
    }
    let mut lines = Lines(&block[..end + 2]);
    let line = lines.next_line()?.unwrap_or_default();
    if is_long_line(line.len() + 1, sizes) {
        return Err(Refusal::UriTooLong);
    }
    let request = RequestLine::parse(line, sizes)?;
    let mut fields = Fields::default();
    while let Some(line) = lines.next_line()? {
        fields.count += 1;
        if fields.count > sizes.header_fields {
            return Err(Refusal::HeadersTooLarge);
        }
        fields.read(line)?;
    }
    fields.check(&request)?;
    let body = fields.body(&request, sizes)?;
    Ok(Some(Head { length: lead + end + 4, body, line: request, fields }))
}

/// The fields of a header that was read before, in their order: names as they came, and values.
pub fn fields_of(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    let mut lines = Lines(header);
    let lines = std::iter::from_fn(move || lines.next_line().ok().flatten());
    lines.skip_while(|line| line.is_empty()).skip(1).filter_map(fields::split)
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
    let line = find(block, b"\n").unwrap_or(block.len());
    if is_long_line(line, sizes) { Refusal::UriTooLong } else { Refusal::HeadersTooLarge }
}

/// Where the empty line begins that ends a header, none before `from`.
fn find_end(block: &[u8], from: usize) -> Option<usize> {
    let line_ends = memchr::memchr_iter(b'\n', &block[from..]).map(|at| from + at);
    let mut empty = line_ends.filter(|at| block[..*at].ends_with(b"\r\n\r"));
    empty.next().map(|at| at - 3).filter(|at| *at >= from)
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, needle)
}

/// Lines that end with CRLF. A LF alone is refused; a CR within a line is no part of what stands
/// in one, and refused there.
#[derive(Clone)]
struct Lines<'b>(&'b [u8]);

impl<'b> Lines<'b> {
    fn next_line(&mut self) -> Result<Option<&'b [u8]>, Refusal> {
        let Some(end) = memchr::memchr(b'\n', self.0) else { return Ok(None) };
        let (line, rest) = self.0.split_at(end + 1);
        self.0 = rest;
        line.strip_suffix(b"\r\n").map(Some).ok_or(Refusal::BadRequest)
    }
}

/// The first line of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLine<'b> {
    /// The method as it came; a token.
    pub method: &'b [u8],
    /// The target as it came.
    pub target: &'b [u8],
    /// Whether this is HTTP/1.1; HTTP/1.0 if not.
    pub is_http_11: bool,
}

impl Head<'_> {
    /// Whether this is a request of the plainest shape: GET or HEAD of HTTP/1.1 for a path, with
    /// nothing behind its header and nothing in it that asks for more than an answer.
    pub fn is_plain(&self) -> bool {
        self.line.is_http_11
            && matches!(self.line.method, b"GET" | b"HEAD")
            && self.line.target.first() == Some(&b'/')
            && self.fields.are_plain()
    }
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
        // What is in every target of ours needs no second look.
        let simple = |byte: &u8| USUAL_BYTES[usize::from(*byte)];
        let is_answered_here = matches!(self.method, b"CONNECT" | b"TRACE");
        let is_path = self.target.first() == Some(&b'/');
        if is_path && !is_answered_here && self.target.iter().all(simple) {
            return Ok(());
        }
        // UTF-8 passes: what it means is decided where the segment is decoded.
        let bad = |byte: &u8| byte.is_ascii_control() || *byte == b'#';
        let is_text = std::str::from_utf8(self.target).is_ok();
        // What Pingora's own parser refuses would get an empty 400 of its own.
        let is_target = is_answered_here || is_pingora_target(self.target);
        let is_empty = self.target.is_empty() && !is_answered_here;
        if is_empty || !is_text || !is_target || self.target.iter().any(bad) {
            return Err(Refusal::BadRequest);
        }
        if is_answered_here {
            return Err(Refusal::MethodNotAllowed { allow: METHODS });
        }
        Ok(())
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
    let mut fields = Fields::default();
    fields.host = authority.unwrap_or_default();
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

/// Whether Pingora takes this target, also one that does not begin with a slash.
fn is_pingora_target(target: &[u8]) -> bool {
    match target.first() {
        Some(b'/') => PathAndQuery::try_from(target).is_ok(),
        _ => PathAndQuery::try_from([b"/", target].concat().as_slice()).is_ok(),
    }
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

    fn read(text: &str, searched: usize) -> Result<Option<(usize, usize)>, u16> {
        let head = read_head(text.as_bytes(), searched, &SIZES);
        head.map(|head| head.map(|head| (head.length, head.body))).map_err(|r| r.status())
    }

    fn status(text: &str) -> Result<Option<(usize, usize)>, u16> {
        read(text, 0)
    }

    #[test]
    fn a_plain_request_is_taken_and_nothing_behind_it() {
        let text = "GET /v1/usage HTTP/1.1\r\nHost: a\r\n\r\n";
        let head = (text.len(), 0);
        assert_eq!(status(text), Ok(Some(head)));
        assert_eq!(status(&format!("{text}{text}")), Ok(Some(head)));
        assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), Ok(Some((18, 0))));
        for cut in 0..text.len() {
            assert_eq!(status(&text[..cut]), Ok(None), "{cut}");
            assert_eq!(read(text, cut), Ok(Some(head)), "{cut}");
        }
        let post = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(status(post), Ok(Some((post.len() - 5, 5))));
    }

    #[test]
    fn a_long_line_is_too_long_however_it_comes() {
        for length in 2_100..2_120 {
            let line = format!("GET /{} HTTP/1.1", "a".repeat(length - 14));
            let text = format!("{line}\r\nHost: a\r\n\r\n");
            assert_eq!(status(&text), Err(414), "{length}");
            for cut in 0..text.len() {
                assert!(matches!(status(&text[..cut]), Ok(None) | Err(414)), "{length} {cut}");
            }
        }
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
            "GET / HTTP/1.1\r\nHost: [\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: []\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: []][\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: :80\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: a:+80\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: .\r\n\r\n".to_owned(),
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
        assert!(read_head(no_text, 0, &SIZES).is_err());
        assert_eq!(status(&format!("CONNECT a:1 HTTP/1.1\r\n{host}\r\n")), Err(405));
        assert_eq!(status(&format!("TRACE / HTTP/1.1\r\n{host}\r\n")), Err(405));
    }

    #[test]
    fn a_request_that_asks_for_more_than_an_answer_is_not_plain() {
        let is_plain = |line: &str, fields: &str| {
            let text = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            read_head(text.as_bytes(), 0, &SIZES).unwrap().unwrap().is_plain()
        };
        for fields in [
            "",
            "Authorization: Bearer x\r\nOrigin: https://a\r\nX-Request-Id: 1\r\n",
            "Connection: keep-alive\r\nAccept: */*\r\n",
            "connection: Close\r\n",
            "Connection: keep-alive, close\r\n",
            "Connection: close\r\nConnection: close\r\n",
        ] {
            assert!(is_plain("GET /a", fields) && is_plain("HEAD /a", fields), "{fields:?}");
        }
        for fields in [
            "Content-Length: 0\r\n",
            "Upgrade: h2c\r\n",
            "Expect: 100-continue\r\n",
            "Connection: te\r\n",
            "Connection: keep-alive; timeout=5\r\n",
            "Connection: close\r\nConnection: a@b\r\n",
            "Keep-Alive: timeout=5\r\n",
            "Authorization: Bearer x\r\nAuthorization: Bearer x\r\n",
            "Origin: https://a\r\nOrigin: https://a\r\n",
            "X-Request-Id: 1\r\nX-Request-Id: 1\r\n",
            "Cookie: a=1\r\nCookie: b=2\r\n",
        ] {
            assert!(!is_plain("GET /a", fields), "{fields:?}");
        }
        for line in ["POST /a", "OPTIONS /a", "GET http://a/a", "OPTIONS *"] {
            assert!(!is_plain(line, ""), "{line:?}");
        }
        let old = read_head(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n", 0, &SIZES);
        assert!(!old.unwrap().unwrap().is_plain());
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
