//! The fields of a request header: their grammar, and those that decide about a request's frame
//! or about its answer.
//!
//! It keeps what the door and the gates ask for and forgets the rest.

use std::net::Ipv6Addr;

use super::byte_tables::is_token_byte;
use super::limits::RequestLimits;
use super::request_line::RequestLine;
use crate::model::refusal::Refusal;

/// More members than anybody has for `Connection`.
pub const MAX_CONNECTION_OPTIONS: usize = 64;

/// The fields of a header, as far as anybody asks for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFields<'b> {
    pub(super) count: usize,
    pub(super) host_count: usize,
    pub(super) host: &'b [u8],
    content_length_count: usize,
    content_length: &'b [u8],
    has_transfer_encoding: bool,
    connection_options: usize,
    /// `close` stands among the options of `Connection`.
    pub closes: bool,
    /// `Expect` holds `100-continue`.
    pub expects_continue: bool,
    /// `Expect` holds something else.
    has_unknown_expectation: bool,
    /// The value of `Authorization`, of `Origin` and of `X-Request-Id`, where it stands there once.
    pub authorization: Option<&'b [u8]>,
    /// See above.
    pub origin: Option<&'b [u8]>,
    /// See above.
    pub request_id: Option<&'b [u8]>,
    /// A field stands there that asks for more than an answer, or one twice that may stand once.
    has_unusual_field: bool,
    has_cookie: bool,
}

impl<'b> RequestFields<'b> {
    /// Whether the request asks for no more than an answer: it has no body, and nothing in it
    /// would change how the next one is read.
    pub fn is_cleartext(&self) -> bool {
        self.host_count == 1 && self.content_length_count == 0 && !self.has_unusual_field
    }

    pub(super) fn parse_line(&mut self, line: &'b [u8]) -> Result<(), Refusal> {
        // This refuses folded lines and space before the colon too.
        let end = line.iter().position(|byte| !is_token_byte(*byte)).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let value = rest.strip_prefix(b":").filter(|_| end > 0).ok_or(Refusal::BadRequest)?;
        let value = trim_ows(value);
        self.add_field(name, value)
    }

    pub(super) fn add_field(&mut self, name: &[u8], value: &'b [u8]) -> Result<(), Refusal> {
        if has_control_byte(value) {
            return Err(Refusal::BadRequest);
        }
        if name.eq_ignore_ascii_case(b"host") {
            self.host_count += 1;
            self.host = value;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            self.content_length_count += 1;
            self.content_length = value;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.has_transfer_encoding = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            self.add_connection_options(value)?;
        } else if name.eq_ignore_ascii_case(b"expect") {
            for member in list_members(value) {
                match member.eq_ignore_ascii_case(b"100-continue") {
                    true => self.expects_continue = true,
                    false => self.has_unknown_expectation = true,
                }
            }
            self.has_unusual_field = true;
        } else {
            self.keep_gate_field(name, value);
        }
        Ok(())
    }

    /// All lines of `Connection` are one list. What is no option in it is none that we know.
    fn add_connection_options(&mut self, value: &[u8]) -> Result<(), Refusal> {
        for option in list_members(value) {
            self.connection_options += 1;
            if self.connection_options > MAX_CONNECTION_OPTIONS || is_end_to_end_field(option) {
                return Err(Refusal::BadRequest);
            }
            if option.eq_ignore_ascii_case(b"close") {
                self.closes = true;
            } else if !option.eq_ignore_ascii_case(b"keep-alive") {
                self.has_unusual_field = true;
            }
        }
        Ok(())
    }

    /// Keeps what the gates ask for.
    fn keep_gate_field(&mut self, name: &[u8], value: &'b [u8]) {
        let kept = match name.len() {
            6 if name.eq_ignore_ascii_case(b"origin") => &mut self.origin,
            12 if name.eq_ignore_ascii_case(b"x-request-id") => &mut self.request_id,
            13 if name.eq_ignore_ascii_case(b"authorization") => &mut self.authorization,
            6 if name.eq_ignore_ascii_case(b"cookie") => {
                // Further on they are one.
                self.has_unusual_field |= std::mem::replace(&mut self.has_cookie, true);
                return;
            }
            _ => {
                self.has_unusual_field |= name.eq_ignore_ascii_case(b"upgrade")
                    || name.eq_ignore_ascii_case(b"keep-alive");
                return;
            }
        };
        self.has_unusual_field |= kept.replace(value).is_some();
    }

    pub(super) fn check_host_and_framing(&self, request: &RequestLine<'_>) -> Result<(), Refusal> {
        let has_host = if request.is_http_11 { self.host_count == 1 } else { self.host_count <= 1 };
        let valid = self.host_count == 0 || is_authority(self.host);
        let same = match target_authority(request.target) {
            Some(authority) => authority.eq_ignore_ascii_case(self.host),
            None => true,
        };
        let has_clear_framing = !self.has_transfer_encoding && self.content_length_count <= 1;
        if !(has_host && valid && same && has_clear_framing) {
            return Err(Refusal::BadRequest);
        }
        // HTTP/1.0 knows no expectations (RFC 9110 section 10.1.1).
        let is_met = !self.has_unknown_expectation || !request.is_http_11;
        if is_met { Ok(()) } else { Err(Refusal::ExpectationFailed) }
    }

    /// The length of the body. Methods that carry none may not announce one; that removes request
    /// smuggling as a class.
    pub(super) fn body_length(
        &self,
        request: &RequestLine<'_>,
        sizes: &RequestLimits,
    ) -> Result<usize, Refusal> {
        if self.content_length_count == 0 {
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

/// The name and the value of a field.
pub(super) fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], trim_ows(&line[colon + 1..])))
}

/// A field's value without the blanks around it (RFC 9110 section 5.5). No other character is one,
/// though ASCII calls a form feed white space.
fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Whether a control character stands in a value, other than a tab. All of it is looked at, many
/// bytes at a time.
fn has_control_byte(value: &[u8]) -> bool {
    value.iter().fold(false, |found, byte| found | (byte.is_ascii_control() & (*byte != b'\t')))
}

/// The members of a list, without those that are empty (RFC 9110 section 5.6.1.2).
pub fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let members = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.filter(|member| !member.is_empty())
}

/// Headers that we rely on must not be declared hop-by-hop by the caller.
fn is_end_to_end_field(option: &[u8]) -> bool {
    const OURS: [&[u8]; 8] = [
        b"authorization",
        b"host",
        b"origin",
        b"content-length",
        b"transfer-encoding",
        b"x-request-id",
        b"traceparent",
        b"forwarded",
    ];
    let begins = |with: &[u8]| {
        option.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with))
    };
    OURS.iter().any(|ours| option.eq_ignore_ascii_case(ours))
        || begins(b"x-riskgate")
        || begins(b"x-forwarded")
}

/// The authority of an absolute-form target.
fn target_authority(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return None;
    }
    let start = memchr::memmem::find(target, b"://")? + 3;
    let rest = &target[start..];
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// A name or an address, and perhaps a port (RFC 3986 section 3.2); no user.
fn is_authority(host: &[u8]) -> bool {
    // The colons of an IPv6 address stand inside of its brackets.
    let name_end = match host.first() {
        Some(b'[') => memchr::memchr(b']', host).map_or(0, |at| at + 1),
        _ => memchr::memchr(b':', host).unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(name_end);
    let good_name = match name.strip_prefix(b"[") {
        Some(address) => parse_text::<Ipv6Addr>(&address[..address.len() - 1]).is_some(),
        None => {
            let mark = |byte: &u8| matches!(byte, b'-' | b'.' | b'_' | b'~');
            name.iter().all(|byte| byte.is_ascii_alphanumeric() || mark(byte))
                && !name.iter().all(mark)
        }
    };
    let good_port = match port {
        [] | [b':'] => true,
        [b':', digits @ ..] => digits[0].is_ascii_digit() && parse_text::<u16>(digits).is_some(),
        _ => false,
    };
    host.len() <= 261 && good_name && good_port
}

fn parse_text<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
