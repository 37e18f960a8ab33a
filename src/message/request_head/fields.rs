//! The fields of a request head: their grammar, and the values of the fields that the connection
//! and the gates read.

use std::net::Ipv6Addr;

use super::accepted::AcceptedTypes;
use super::limits::RequestLimits;
use super::list::{is_continue, members_of_list};
use super::request_line::{RequestLine, takes_body};
use crate::message::field_names::{RISKGATE_FIELD_PREFIX, has_prefix_ignore_case};
use crate::model::refusal::Refusal;
use crate::support::byte_sets::is_token_byte;

/// The most options that `Connection` may list. No honest client sends as many.
pub const MAX_CONNECTION_OPTIONS: usize = 64;

/// Where the body of a request ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBodyFraming {
    /// After this many bytes; 0 if the request has no body.
    Length(usize),
    /// After the last chunk.
    Chunked,
}

/// The fields of a request head that the parser notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFields<'b> {
    pub(super) field_count: usize,
    pub(super) host_count: usize,
    pub(super) host: &'b [u8],
    content_length_count: usize,
    content_length: &'b [u8],
    has_transfer_encoding: bool,
    /// Whether the only value of `Transfer-Encoding` is `chunked`.
    is_chunked: bool,
    connection_option_count: usize,
    /// Whether `Connection` contains `close`.
    pub wants_close: bool,
    /// Whether `Expect` contains `100-continue`.
    pub expects_continue: bool,
    /// Whether `Expect` contains any other expectation.
    has_unknown_expectation: bool,
    /// The value of `Authorization`. If `Authorization`, `Origin` or `X-Request-Id` occurs several
    /// times, the fast path doesn't serve the request.
    pub authorization: Option<&'b [u8]>,
    /// The value of `Origin`.
    pub origin: Option<&'b [u8]>,
    /// The value of `X-Request-Id`.
    pub request_id: Option<&'b [u8]>,
    /// Whether the request has `Access-Control-Request-Method`, as a CORS preflight has.
    pub has_cors_request_method: bool,
    /// What `Accept` says.
    pub accepted: AcceptedTypes,
    /// Whether only the Pingora path can handle the fields: a field needs it, or a field occurs
    /// several times that should occur once.
    has_pingora_path_field: bool,
    has_cookie: bool,
}

impl<'b> RequestFields<'b> {
    /// The value of `Host`; `None` unless `Host` occurs once.
    pub fn single_host(&self) -> Option<&'b [u8]> {
        (self.host_count == 1).then_some(self.host)
    }

    /// Returns false if the method or a field needs the Pingora path. The callers check the target
    /// and the length of the body. These conditions must hold:
    /// - The method takes a body, or it is GET, HEAD or OPTIONS without `Content-Length`.
    /// - `Host` occurs once.
    /// - No field needs the Pingora path.
    pub fn may_take_fast_path(&self, method: &[u8]) -> bool {
        let is_plain = matches!(method, b"GET" | b"HEAD" | b"OPTIONS");
        (takes_body(method) || is_plain && self.has_no_content_length())
            && self.host_count == 1
            && !self.has_pingora_path_field
    }

    pub(super) fn has_no_content_length(&self) -> bool {
        self.content_length_count == 0
    }

    pub(super) fn parse_field_line(&mut self, line: &'b [u8]) -> Result<(), Refusal> {
        // A folded line begins with a blank, so this refuses folded lines, and blanks before the
        // colon.
        let end = line.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let value = rest.strip_prefix(b":").filter(|_| end > 0).ok_or(Refusal::BadRequest)?;
        let value = trim_ows(value);
        self.add_field(name, value)
    }

    pub(super) fn add_field(&mut self, name: &[u8], value: &'b [u8]) -> Result<(), Refusal> {
        // Over HTTP/1.1, the caller has trimmed the blanks around the value. Over HTTP/2, a value
        // may have no blanks around it (RFC 9113 section 8.2.1).
        if has_forbidden_control_byte(value) || value.trim_ascii().len() < value.len() {
            return Err(Refusal::BadRequest);
        }
        if name.eq_ignore_ascii_case(b"host") {
            self.host_count += 1;
            self.host = value;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            self.content_length_count += 1;
            self.content_length = value;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let is_first = !std::mem::replace(&mut self.has_transfer_encoding, true);
            self.is_chunked = is_first && value.eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case(b"connection") {
            self.add_connection_options(value)?;
        } else if name.eq_ignore_ascii_case(b"expect") {
            for member in members_of_list(value) {
                match is_continue(member) {
                    true => self.expects_continue = true,
                    false => self.has_unknown_expectation = true,
                }
            }
            self.has_pingora_path_field = true;
        } else {
            self.keep_if_gate_field(name, value);
        }
        Ok(())
    }

    /// Reads one line of `Connection`. Refuses the request if all its lines together have more
    /// options than `MAX_CONNECTION_OPTIONS`, or if an option must stay end-to-end.
    fn add_connection_options(&mut self, value: &[u8]) -> Result<(), Refusal> {
        for option in members_of_list(value) {
            self.connection_option_count += 1;
            if self.connection_option_count > MAX_CONNECTION_OPTIONS || must_stay_end_to_end(option)
            {
                return Err(Refusal::BadRequest);
            }
            if option.eq_ignore_ascii_case(b"close") {
                self.wants_close = true;
            } else if !option.eq_ignore_ascii_case(b"keep-alive") {
                self.has_pingora_path_field = true;
            }
        }
        Ok(())
    }

    /// Keeps the value of a field that the gates read. For any other field, notes whether the
    /// request needs the Pingora path because of it.
    fn keep_if_gate_field(&mut self, name: &[u8], value: &'b [u8]) {
        let kept = match name.len() {
            6 if name.eq_ignore_ascii_case(b"origin") => &mut self.origin,
            12 if name.eq_ignore_ascii_case(b"x-request-id") => &mut self.request_id,
            13 if name.eq_ignore_ascii_case(b"authorization") => &mut self.authorization,
            6 if name.eq_ignore_ascii_case(b"accept") => {
                self.accepted.add(value);
                return;
            }
            6 if name.eq_ignore_ascii_case(b"cookie") => {
                // The fast path of HTTP/1.1 can't join several `Cookie` fields.
                self.has_pingora_path_field |= std::mem::replace(&mut self.has_cookie, true);
                return;
            }
            29 if name.eq_ignore_ascii_case(b"access-control-request-method") => {
                self.has_cors_request_method = true;
                return;
            }
            _ => {
                self.has_pingora_path_field |= name.eq_ignore_ascii_case(b"upgrade")
                    || name.eq_ignore_ascii_case(b"keep-alive");
                return;
            }
        };
        self.has_pingora_path_field |= kept.replace(value).is_some();
    }

    /// Checks `Host`, the fields that determine the body's length, and `Expect`.
    pub(super) fn check_host_framing_and_expect(
        &self,
        request: &RequestLine<'_>,
        limits: &RequestLimits,
    ) -> Result<(), Refusal> {
        let has_host = if request.is_http_11 { self.host_count == 1 } else { self.host_count <= 1 };
        let is_host_valid = self.host_count == 0 || host_without_port(self.host).is_some();
        let is_same_host = match authority_of_absolute_target(request.target) {
            Some(authority) => authority.eq_ignore_ascii_case(self.host),
            None => true,
        };
        let may_have_chunks = !self.has_transfer_encoding
            || takes_body(request.method)
            || limits.is_authz_target(request.target);
        let is_body_clear = self.has_clear_framing(request.is_http_11) && may_have_chunks;
        if !(has_host && is_host_valid && is_same_host && is_body_clear) {
            return Err(Refusal::BadRequest);
        }
        // HTTP/1.0 has no expectations (RFC 9110 section 10.1.1).
        let is_met = !self.has_unknown_expectation || !request.is_http_11;
        if is_met { Ok(()) } else { Err(Refusal::ExpectationFailed) }
    }

    /// Returns true if all servers find the same end of the body: the request has at most one
    /// `Content-Length`, or one `Transfer-Encoding: chunked`, no `Content-Length` and HTTP/1.1.
    fn has_clear_framing(&self, is_http_11: bool) -> bool {
        match self.has_transfer_encoding {
            true => self.is_chunked && self.content_length_count == 0 && is_http_11,
            false => self.content_length_count <= 1,
        }
    }

    /// Refuses a body of which two servers could find different ends. Checks neither whether the
    /// method takes a body, nor how long the body is.
    pub(super) fn check_framing_alone(&self, is_http_11: bool) -> Result<(), Refusal> {
        let is_length_valid = || parse_content_length(self.content_length).is_some();
        match self.has_clear_framing(is_http_11)
            && (self.has_no_content_length() || is_length_valid())
        {
            true => Ok(()),
            false => Err(Refusal::BadRequest),
        }
    }

    /// Returns where the body ends. Refuses a body whose `Content-Length` is too long. Refuses a
    /// body with a length if the method takes no body, because a server could read the body as a
    /// second request. At and below `authz_path`, each method may have a body of any length:
    /// riskgate answers these requests itself, so their bodies reach no server.
    pub(super) fn parse_body_framing(
        &self,
        request: &RequestLine<'_>,
        limits: &RequestLimits,
    ) -> Result<RequestBodyFraming, Refusal> {
        if self.has_transfer_encoding {
            return Ok(RequestBodyFraming::Chunked);
        }
        if self.content_length_count == 0 {
            return Ok(RequestBodyFraming::Length(0));
        }
        let value = parse_content_length(self.content_length).ok_or(Refusal::BadRequest)?;
        match value {
            0 => {}
            _ if limits.is_authz_target(request.target) => {}
            _ if !takes_body(request.method) => return Err(Refusal::BadRequest),
            _ if value > limits.body_bytes => return Err(Refusal::ContentTooLarge),
            _ => {}
        }
        Ok(RequestBodyFraming::Length(value))
    }
}

/// Splits a line into the name and the value of its field; `None` if it has no colon.
pub(super) fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], trim_ows(&line[colon + 1..])))
}

/// Trims space and tab around a field's value (RFC 9110 section 5.5). `trim_ascii` would trim other
/// bytes as well, such as a form feed.
fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Returns true if a value contains a control character other than a tab. `fold` has no early exit,
/// so the compiler can test many bytes at a time.
fn has_forbidden_control_byte(value: &[u8]) -> bool {
    value.iter().fold(false, |found, byte| found | (byte.is_ascii_control() & (*byte != b'\t')))
}

/// Parses one number of `Content-Length`, in a request or a response: 1 to 19 digits. With more
/// digits, the integer of some parser could overflow (RFC 9110 section 8.6).
pub fn parse_content_length(digits: &[u8]) -> Option<usize> {
    let is_number = digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// Returns the text behind the scheme in `Authorization: Bearer …` (RFC 6750 section 2.1). `None`
/// unless the field occurs once, with this scheme.
pub fn bearer_credentials<'v>(values: impl Iterator<Item = &'v [u8]>) -> Option<&'v [u8]> {
    let (scheme, credentials) = value_if_single(values)?.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| credentials.trim_ascii())
}

/// Returns the value of a field that occurs once; `None` if the field is absent or occurs several
/// times.
pub fn value_if_single<'v>(mut values: impl Iterator<Item = &'v [u8]>) -> Option<&'v [u8]> {
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

/// Returns true for a field that a client must not list in `Connection`, because riskgate relies on
/// this field.
pub(crate) fn must_stay_end_to_end(option: &[u8]) -> bool {
    const END_TO_END_FIELDS: [&[u8]; 10] = [
        b"authorization",
        b"host",
        b"origin",
        b"content-length",
        b"content-type",
        b"content-encoding",
        b"transfer-encoding",
        b"x-request-id",
        b"traceparent",
        b"forwarded",
    ];
    END_TO_END_FIELDS.iter().any(|name| option.eq_ignore_ascii_case(name))
        || has_prefix_ignore_case(option, RISKGATE_FIELD_PREFIX)
        || has_prefix_ignore_case(option, "x-forwarded")
}

/// Returns the authority of a target in absolute form; `None` for every other form.
fn authority_of_absolute_target(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return None;
    }
    let start = memchr::memmem::find(target, b"://")? + 3;
    let rest = &target[start..];
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Returns the host of a text that is a host with an optional port (RFC 3986 section 3.2). `None`
/// for any other text, and for a text of more than 261 bytes: a host of 255 bytes, a colon and 5
/// digits.
pub fn host_without_port(host: &[u8]) -> Option<&[u8]> {
    // The colons of an IPv6 address are inside its brackets.
    let name_end = match host.first() {
        Some(b'[') => memchr::memchr(b']', host).map_or(0, |at| at + 1),
        _ => memchr::memchr(b':', host).unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(name_end);
    let is_name_valid = match name.strip_prefix(b"[") {
        Some(address) => parse_from_utf8::<Ipv6Addr>(&address[..address.len() - 1]).is_some(),
        None => {
            let mark = |byte: &u8| matches!(byte, b'-' | b'.' | b'_' | b'~');
            name.iter().all(|byte| byte.is_ascii_alphanumeric() || mark(byte))
                && !name.iter().all(mark)
        }
    };
    let is_port_valid = match port {
        [] | [b':'] => true,
        [b':', digits @ ..] => {
            digits[0].is_ascii_digit() && parse_from_utf8::<u16>(digits).is_some()
        }
        _ => false,
    };
    (host.len() <= 261 && is_name_valid && is_port_valid).then_some(name)
}

fn parse_from_utf8<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
