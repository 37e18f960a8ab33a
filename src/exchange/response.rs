//! Which responses of an upstream server are forwarded, and where the body of a response ends.

/// The error if the bytes from an upstream server are no response that riskgate can forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedResponse;

/// What riskgate does with a response that has this status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKind {
    /// An informational response (1xx): riskgate drops it and waits for the next one.
    Informational,
    /// A response that riskgate forwards.
    Final,
    /// 101, although riskgate never asks for an upgrade, or no status of HTTP.
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

/// Returns where the body of a final response ends. `content_length` is `None` if the response has
/// no `Content-Length`.
pub fn body_framing(
    status: u16,
    is_head_method: bool,
    is_chunked: bool,
    content_length: Option<u64>,
) -> BodyFraming {
    match (is_chunked, content_length) {
        _ if is_head_method || matches!(status, 204 | 304) => BodyFraming::Empty,
        (true, _) => BodyFraming::Chunked,
        (false, Some(0)) => BodyFraming::Empty,
        (false, Some(length)) => BodyFraming::Length(length),
        (false, None) => BodyFraming::UntilClose,
    }
}

/// Parses `Content-Length`. Several values are accepted if all of them are the same number.
pub fn parse_content_length<'v>(
    values: impl Iterator<Item = &'v [u8]>,
) -> Result<Option<u64>, MalformedResponse> {
    let mut length = None;
    for value in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        let digits = value.trim_ascii();
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let is_number = digits.first().is_some_and(u8::is_ascii_digit);
        match number.filter(|number| is_number && *length.get_or_insert(*number) == *number) {
            Some(_) => {}
            None => return Err(MalformedResponse),
        }
    }
    Ok(length)
}

/// Returns true if the client's connection closes after the response: the client asked for that,
/// or the process is about to end.
pub fn closes_after_response(client_wants_close: bool, is_process_ending: bool) -> bool {
    client_wants_close || is_process_ending
}

/// Returns true if a value of `Content-Type` says that the body is a page of HTML.
pub fn is_html_type(value: impl AsRef<[u8]>) -> bool {
    let media_type = value.as_ref().split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"text/html")
}

/// Returns false if a response with this status must have neither `Content-Length` nor
/// `Transfer-Encoding` (RFC 9110 section 8.6, RFC 9112 section 6.1).
pub fn may_have_framing_fields(status: u16) -> bool {
    status != 204
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_informational_responses_are_dropped() {
        for (status, kind) in [
            (99, StatusKind::Invalid),
            (100, StatusKind::Informational),
            (101, StatusKind::Invalid),
            (102, StatusKind::Informational),
            (199, StatusKind::Informational),
            (200, StatusKind::Final),
            (999, StatusKind::Final),
            (1000, StatusKind::Invalid),
        ] {
            assert_eq!(StatusKind::from(status), kind, "{status}");
        }
    }

    #[test]
    fn a_connection_closes_if_its_client_wants_that_or_the_process_ends() {
        assert!(!closes_after_response(false, false));
        assert!(closes_after_response(true, false) && closes_after_response(false, true));
    }

    #[test]
    fn a_response_to_head_a_204_and_a_304_have_no_body() {
        for (status, is_head_method) in [(200, true), (204, false), (304, false)] {
            for (is_chunked, length) in [(true, None), (false, Some(5)), (false, None)] {
                let framing = body_framing(status, is_head_method, is_chunked, length);
                assert_eq!(framing, BodyFraming::Empty);
            }
        }
        assert_eq!(body_framing(200, false, true, Some(5)), BodyFraming::Chunked);
        assert_eq!(body_framing(200, false, false, Some(5)), BodyFraming::Length(5));
        assert_eq!(body_framing(200, false, false, Some(0)), BodyFraming::Empty);
        assert_eq!(body_framing(200, false, false, None), BodyFraming::UntilClose);
        assert!(may_have_framing_fields(304) && !may_have_framing_fields(204));
    }
}
