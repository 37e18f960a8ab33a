//! Chooses how a body is read, by its type.

use super::content_type::ContentType;
use super::field_path::FieldPath;
use super::field_values::{FieldValues, UnreadCause};
use super::{json, multipart, urlencoded};

/// The longest body that is read, in bytes.
pub const MAX_SCREENED_BODY_BYTES: usize = 64 * 1024;

/// The header fields that tell how a body is to be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodyHeaders<'h> {
    /// The value of `Content-Type`; `None` if it is absent or occurs several times.
    pub content_type: Option<&'h [u8]>,
    /// Whether the request has a `Content-Encoding` other than `identity`.
    pub is_encoded: bool,
}

/// Returns the values of all `fields` in a body, and in the query of its target: many servers read
/// both.
///
/// # Errors
/// Returns an error if no value could be read.
pub fn read_field_values(
    headers: BodyHeaders<'_>,
    query: &[u8],
    body: &[u8],
    fields: &[FieldPath],
) -> Result<FieldValues, UnreadCause> {
    let mut found = read_body_values(headers, body, fields);
    found.append(read_query_values(query, fields));
    found.or_cause()
}

/// Returns the values of all `fields` in a query, which does not begin with `?`.
pub fn read_query_values(query: &[u8], fields: &[FieldPath]) -> FieldValues {
    urlencoded::read_values(query, fields)
}

/// Returns the values of all `fields` in a body.
pub fn read_body_values(
    headers: BodyHeaders<'_>,
    body: &[u8],
    fields: &[FieldPath],
) -> FieldValues {
    match read_body(headers, body, fields) {
        Ok(found) => found,
        Err(UnreadCause::NoField) => FieldValues::default(),
        Err(cause) => FieldValues::unread(cause),
    }
}

fn read_body(
    headers: BodyHeaders<'_>,
    body: &[u8],
    fields: &[FieldPath],
) -> Result<FieldValues, UnreadCause> {
    if body.is_empty() {
        return Err(UnreadCause::NoField);
    }
    if headers.is_encoded {
        return Err(UnreadCause::Encoded);
    }
    if body.len() > MAX_SCREENED_BODY_BYTES {
        return Err(UnreadCause::TooLong);
    }
    let content_type = headers.content_type.ok_or(UnreadCause::OtherType)?;
    let content_type = ContentType::parse(content_type).ok_or(UnreadCause::OtherType)?;
    if !content_type.is_utf8() {
        return Err(UnreadCause::OtherCharset);
    }
    match content_type.media_type.as_str() {
        "application/json" => json::read_values(body, fields),
        // Browsers encode these first characters. Some servers would read JSON here, whatever the
        // type; others would remove the character.
        "application/x-www-form-urlencoded" if has_odd_start(body) => Err(UnreadCause::Broken),
        "application/x-www-form-urlencoded" => Ok(urlencoded::read_values(body, fields)),
        "multipart/form-data" => {
            let boundary = content_type.boundary.ok_or(UnreadCause::Broken)?;
            multipart::read_values(body, &boundary, fields)
        }
        _ => Err(UnreadCause::OtherType),
    }
}

/// Returns true if the body begins as JSON does, or with `?` or a byte order mark.
fn has_odd_start(body: &[u8]) -> bool {
    matches!(body.trim_ascii_start().first(), Some(b'{' | b'[' | b'"' | b'?' | 0xef | 0xfe | 0xff))
}
