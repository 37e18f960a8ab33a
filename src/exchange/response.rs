//! Which responses of an upstream server riskgate forwards, and where the body of a response ends.

use http::HeaderValue;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType};

use crate::message::request_head::{MAX_CONNECTION_OPTIONS, members_of_list, parse_content_length};
use crate::message::response::Reply;

/// Why riskgate can't forward what an upstream server sends. The text follows "found".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MalformedResponse {
    /// The header is malformed, or the server speaks another protocol.
    #[error("bytes that are no response header of HTTP/1.1")]
    Header,
    /// The header has too many fields.
    #[error("more than 256 fields in the header")]
    TooManyFields,
    /// The header is too long.
    #[error("a header of more than 1 MiB")]
    TooLongHeader,
    /// [`StatusKind::Invalid`].
    #[error("the status 101 or a number that is no status")]
    Status,
    /// The server has sent more than 64 responses with a status of 1xx.
    #[error("more than 64 informational responses (1xx)")]
    TooManyInformational,
    /// `Connection` lists more than [`MAX_CONNECTION_OPTIONS`].
    #[error("more than 64 options in Connection")]
    ConnectionOptions,
    /// `Transfer-Encoding` has another value than one `chunked`.
    #[error("another Transfer-Encoding than one \"chunked\"")]
    TransferEncoding,
    /// `Content-Length` is no number, or has different values.
    #[error("a Content-Length that is no number or has different values")]
    ContentLength,
    /// Pingora does not say which of the two it found.
    #[error("a Content-Length that is no number, or a header of more than 1 MiB")]
    ContentLengthOrTooLongHeader,
    /// A chunk of the body is malformed.
    #[error("a malformed chunk in the body")]
    Chunk,
    /// The connection ended within the response.
    #[error("the end of the connection within the response")]
    Incomplete,
}

/// The types of Pingora's errors for a malformed chunk, in a request or a response.
pub(super) const CHUNK_ERRORS: [ErrorType; 2] =
    [ErrorType::new("InvalidChunk"), ErrorType::new("InvalidTrailerEnd")];

impl MalformedResponse {
    /// Returns what is wrong with a response, by Pingora's error on the connection to the server.
    pub fn of_error(error: &Error) -> MalformedResponse {
        let cause = error.root_cause();
        if let Some(malformed) = cause.downcast_ref::<MalformedResponse>() {
            return *malformed;
        }
        match (error.etype(), cause.downcast_ref::<httparse::Error>()) {
            (_, Some(httparse::Error::TooManyHeaders)) => MalformedResponse::TooManyFields,
            (_, Some(_)) => MalformedResponse::Header,
            (ErrorType::InvalidHTTPHeader, None) => MalformedResponse::ContentLengthOrTooLongHeader,
            (kind, None) if CHUNK_ERRORS.contains(kind) => MalformedResponse::Chunk,
            _ => MalformedResponse::Incomplete,
        }
    }

    /// Makes Pingora's error about this response.
    pub fn into_error(self) -> Box<Error> {
        let error = Error::because(ErrorType::InvalidHTTPHeader, "a malformed response", self);
        error.into_up()
    }
}

/// What riskgate does with a response that has this status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKind {
    /// An informational response (1xx): riskgate drops it and waits for the next one.
    Informational,
    /// A response that riskgate forwards.
    Final,
    /// 101, although riskgate never asks for an upgrade, or a number that is no status of HTTP.
    Invalid,
}

impl From<u16> for StatusKind {
    fn from(status: u16) -> StatusKind {
        match status {
            100 | 102..=199 => StatusKind::Informational,
            200..=999 => StatusKind::Final,
            _ => StatusKind::Invalid,
        }
    }
}

/// The most informational responses that one counter allows. Without this limit, a server could
/// keep a core busy until the deadline.
const MAX_INFORMATIONAL_RESPONSES: u8 = 64;

/// Counts the informational responses of an attempt, or of an exchange on the Pingora path.
#[derive(Clone, Copy, Debug, Default)]
pub struct InformationalResponseCounter(u8);

impl InformationalResponseCounter {
    /// Counts one more response.
    ///
    /// # Errors
    /// Returns an error if the server has sent more than 64 of them.
    pub fn count_next(&mut self) -> Result<(), MalformedResponse> {
        self.0 = self.0.saturating_add(1);
        if self.0 > MAX_INFORMATIONAL_RESPONSES {
            return Err(MalformedResponse::TooManyInformational);
        }
        Ok(())
    }
}

/// Where the body of a response ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body, or its length is 0.
    Empty,
    /// After the last chunk.
    Chunked,
    /// After this many bytes.
    Length(u64),
    /// Where the connection ends.
    UntilClose,
}

/// What the header of a response says about its connection and its body.
pub struct ResponseFraming<'r> {
    /// The names that `Connection` lists.
    pub connection_options: Vec<&'r [u8]>,
    /// Whether the body comes in chunks.
    pub is_chunked: bool,
    /// The length of the body by `Content-Length`. `None` without the field, and if the body comes
    /// in chunks: then only the chunks tell where it ends (RFC 9112 section 6.3).
    pub content_length: Option<u64>,
}

impl<'r> ResponseFraming<'r> {
    /// Reads the values of `Connection`, `Transfer-Encoding` and `Content-Length`. Several values
    /// of `Content-Length` are accepted if all of them are the same number.
    ///
    /// # Errors
    /// Returns an error in each of these cases:
    /// - `Connection` lists more than [`MAX_CONNECTION_OPTIONS`].
    /// - `Transfer-Encoding` has another value than one `chunked`.
    /// - `Content-Length` is no number, or has different values, and the body comes in no chunks.
    pub fn read(
        connection: impl Iterator<Item = &'r [u8]>,
        codings: impl Iterator<Item = &'r [u8]>,
        lengths: impl Iterator<Item = &'r [u8]>,
    ) -> Result<ResponseFraming<'r>, MalformedResponse> {
        let connection_options =
            parse_connection_options(connection).ok_or(MalformedResponse::ConnectionOptions)?;
        let is_chunked =
            is_chunked_if_supported(codings).ok_or(MalformedResponse::TransferEncoding)?;
        let content_length = if is_chunked { None } else { parse_single_length(lengths)? };
        Ok(ResponseFraming { connection_options, is_chunked, content_length })
    }

    /// Reads the fields of Pingora's header.
    ///
    /// # Errors
    /// See [`ResponseFraming::read`].
    pub fn of_header(header: &'r ResponseHeader) -> Result<ResponseFraming<'r>, MalformedResponse> {
        let values = |name| header.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        ResponseFraming::read(values(CONNECTION), values(TRANSFER_ENCODING), values(CONTENT_LENGTH))
    }

    /// Returns where the body of a final response with this status ends.
    pub fn body_framing(&self, status: u16, is_head_method: bool) -> BodyFraming {
        match (self.is_chunked, self.content_length) {
            _ if is_head_method || matches!(status, 204 | 304) => BodyFraming::Empty,
            (true, _) => BodyFraming::Chunked,
            (false, Some(0)) => BodyFraming::Empty,
            (false, Some(length)) => BodyFraming::Length(length),
            (false, None) => BodyFraming::UntilClose,
        }
    }
}

/// Returns the options that the values of `Connection` list (RFC 9110 section 7.6.1); `None` if
/// they list more than [`MAX_CONNECTION_OPTIONS`].
pub(crate) fn parse_connection_options<'v>(
    values: impl Iterator<Item = &'v [u8]>,
) -> Option<Vec<&'v [u8]>> {
    let names: Vec<&[u8]> =
        values.flat_map(members_of_list).take(MAX_CONNECTION_OPTIONS + 1).collect();
    (names.len() <= MAX_CONNECTION_OPTIONS).then_some(names)
}

/// Returns `Some(true)` if the only value of `Transfer-Encoding` is `chunked`, and `Some(false)`
/// without a value. Returns `None` for any other transfer coding: riskgate never forwards such a
/// message.
fn is_chunked_if_supported<'v>(mut codings: impl Iterator<Item = &'v [u8]>) -> Option<bool> {
    match (codings.next(), codings.next()) {
        (None, _) => Some(false),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Some(true),
        _ => None,
    }
}

fn parse_single_length<'v>(
    values: impl Iterator<Item = &'v [u8]>,
) -> Result<Option<u64>, MalformedResponse> {
    let mut length = None;
    for digits in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        let number = parse_content_length(digits.trim_ascii());
        let number = number.ok_or(MalformedResponse::ContentLength)? as u64;
        if *length.get_or_insert(number) != number {
            return Err(MalformedResponse::ContentLength);
        }
    }
    Ok(length)
}

/// Returns true if the client's connection closes after the response: the client asked for that,
/// the process is about to end, or `reply` closes the connection. `reply` is `None` if the response
/// is a server's.
pub fn closes_after_response(
    reply: Option<&Reply>,
    client_wants_close: bool,
    is_process_ending: bool,
) -> bool {
    client_wants_close || is_process_ending || reply.is_some_and(Reply::closes_connection)
}

/// Returns true if a value of `Content-Type` says that the body is a page of HTML.
pub fn is_html_type(value: impl AsRef<[u8]>) -> bool {
    let media_type = value.as_ref().split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"text/html")
}

/// Returns false if a final response with this status must have neither `Content-Length` nor
/// `Transfer-Encoding` (RFC 9110 section 8.6, RFC 9112 section 6.1).
pub fn may_have_framing_fields(status: u16) -> bool {
    status != 204
}

#[cfg(test)]
mod tests;
