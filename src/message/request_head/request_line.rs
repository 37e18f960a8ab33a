//! The request line: its grammar, and the targets that riskgate accepts.

use http::uri::PathAndQuery;
use smol_str::SmolStr;

use super::limits::RequestLimits;
use crate::model::refusal::Refusal;
use crate::support::byte_sets::{byte_set_with_alphanumerics, is_token_byte};

/// The methods of those own routes of riskgate that take no body, as `Allow` lists them.
pub const BUILTIN_METHODS: SmolStr = SmolStr::new_static("GET, HEAD, OPTIONS");
/// The bytes that every parser accepts in a target that begins with `/`.
const COMMON_TARGET_BYTES: [bool; 256] = byte_set_with_alphanumerics(b"/-._~%@+?=&");

/// The request line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLine<'b> {
    /// The method as the client sent it; a token.
    pub method: &'b [u8],
    /// The target as the client sent it.
    pub target: &'b [u8],
    /// True for HTTP/1.1, false for HTTP/1.0.
    pub is_http_11: bool,
}

impl<'b> RequestLine<'b> {
    pub(super) fn parse(
        line: &'b [u8],
        limits: &RequestLimits,
    ) -> Result<RequestLine<'b>, Refusal> {
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
        line.check_target(limits).and_then(|()| is_http_11.map(|_| line))
    }

    /// Refuses a method that no route takes. Call this method once the whole head is checked, so
    /// that the refusal can name the methods of the route.
    pub(super) fn check_method(&self) -> Result<(), Refusal> {
        match is_method_of_no_route(self.method) {
            true => Err(Refusal::MethodNotAllowed { allow: BUILTIN_METHODS }),
            false => Ok(()),
        }
    }

    /// Refuses a target that is too long or malformed.
    pub(super) fn check_target(&self, limits: &RequestLimits) -> Result<(), Refusal> {
        if self.target.len() > limits.max_target_bytes(self.target) {
            return Err(Refusal::UriTooLong);
        }
        // A target in origin form with common bytes needs no further check.
        let is_common = |byte: &u8| COMMON_TARGET_BYTES[usize::from(*byte)];
        let is_path = self.target.first() == Some(&b'/');
        if is_path && self.target.iter().all(is_common) {
            return Ok(());
        }
        // riskgate accepts other characters in UTF-8 here. Its own routes check them when they
        // decode a segment.
        let is_forbidden = |byte: &u8| byte.is_ascii_control() || *byte == b'#';
        let is_text = std::str::from_utf8(self.target).is_ok();
        // If Pingora's parser can't read a target, riskgate refuses it. Pingora would answer with
        // an empty 400. A request with a method that no route takes never reaches Pingora. So its
        // target may be empty, or one that Pingora can't read: such a request gets a 405.
        let is_method_of_no_route = is_method_of_no_route(self.method);
        let is_target = is_method_of_no_route || is_target_valid_for_pingora(self.target);
        let is_empty = self.target.is_empty() && !is_method_of_no_route;
        if is_empty || !is_text || !is_target || self.target.iter().any(is_forbidden) {
            return Err(Refusal::BadRequest);
        }
        Ok(())
    }
}

/// What a request line that may be malformed says about the form of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLineGuess {
    /// Whether the method is HEAD, so that the response has no body.
    pub is_head_method: bool,
    /// Whether the request line ends with `HTTP/1.0`.
    pub is_http_10: bool,
}

impl RequestLineGuess {
    /// Reads the request line at the front of `bytes`, which may be incomplete or malformed.
    pub fn guess(bytes: &[u8]) -> RequestLineGuess {
        let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_http_10 = line.trim_ascii_end().ends_with(b" HTTP/1.0");
        RequestLineGuess { is_head_method: line.starts_with(b"HEAD "), is_http_10 }
    }

    /// The protocol of the request, as the log names it.
    pub fn protocol(self) -> &'static str {
        if self.is_http_10 { "HTTP/1.0" } else { "HTTP/1.1" }
    }
}

/// Returns true if Pingora's parser accepts this target. This function puts a slash before a target
/// that has none (`*`, or absolute form).
fn is_target_valid_for_pingora(target: &[u8]) -> bool {
    match target.first() {
        Some(b'/') => PathAndQuery::try_from(target).is_ok(),
        _ => PathAndQuery::try_from([b"/", target].concat().as_slice()).is_ok(),
    }
}

/// Returns true for the methods that no route takes: CONNECT and TRACE in any case, and GET, HEAD
/// and OPTIONS in another case. Some servers ignore the case of a method, so such a request could
/// reach them with a body, or with a method that their operator has not allowed.
pub fn is_method_of_no_route(method: &[u8]) -> bool {
    const WITHOUT_BODY: [&[u8]; 5] = [b"GET", b"HEAD", b"OPTIONS", b"CONNECT", b"TRACE"];
    !matches!(method, b"GET" | b"HEAD" | b"OPTIONS")
        && WITHOUT_BODY.iter().any(|it| it.eq_ignore_ascii_case(method))
}

/// Returns true for the methods whose requests may have a body: all but GET, HEAD, OPTIONS, CONNECT
/// and TRACE. riskgate refuses other spellings of these: see [`is_method_of_no_route`].
pub fn takes_body(method: &[u8]) -> bool {
    !matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"CONNECT" | b"TRACE")
}
