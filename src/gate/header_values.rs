//! Iterates over the values of one header field, of Pingora's header type and of bytes.

use http::header::{AsHeaderName, HeaderValue};
use pingora::http::RequestHeader;

use crate::message::request_head::iter_parsed_fields;

/// Returns all values of a header field.
pub(crate) fn iter_values(
    header: &RequestHeader,
    name: impl AsHeaderName,
) -> impl Iterator<Item = &[u8]> {
    header.headers.get_all(name).into_iter().map(HeaderValue::as_bytes)
}

/// Like [`iter_values`], for the bytes of a header that have been parsed before.
pub(crate) fn iter_values_in_bytes<'h>(
    header: &'h [u8],
    name: &str,
) -> impl Iterator<Item = &'h [u8]> {
    iter_parsed_fields(header)
        .filter(move |(field, _)| field.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| value)
}
