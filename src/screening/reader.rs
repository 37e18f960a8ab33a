//! Chooses by the type of a body how riskgate reads the body.

use super::content_type::{BodyKind, Charset, ContentType};
use super::field_path::FieldPath;
use super::field_values::{FieldValues, UnreadCause};
use super::server_parsers::{
    has_nameless_address, may_be_arguments, may_begin_json, refers_to_itself,
};
use super::urlencoded::TextAroundPairs;
use super::{json, multipart, urlencoded};

/// The most bytes of a body that riskgate screens.
pub const MAX_SCREENED_BODY_BYTES: usize = 64 * 1024;

/// The header fields that say how a body is to be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodyHeaders<'h> {
    /// The value of `Content-Type`; `None` if it is absent or occurs several times.
    pub content_type: Option<&'h [u8]>,
    /// Whether the request has a `Content-Encoding` other than `identity`.
    pub is_encoded: bool,
}

/// A body, or the start of a longer one.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedBody<'b> {
    /// The bytes. riskgate reads the first [`MAX_SCREENED_BODY_BYTES`] of them.
    pub bytes: &'b [u8],
    /// Whether these are all bytes of the body.
    pub is_whole: bool,
}

impl<'b> ReceivedBody<'b> {
    /// Makes a body of which all bytes are known.
    pub const fn of_whole_body(bytes: &'b [u8]) -> ReceivedBody<'b> {
        ReceivedBody { bytes, is_whole: true }
    }

    /// A body of which no byte is known.
    pub const UNREAD: ReceivedBody<'static> = ReceivedBody { bytes: b"", is_whole: false };

    /// Returns the start that riskgate reads; `None` if it reads the whole body.
    fn start_if_cut(self) -> Option<&'b [u8]> {
        let read = self.bytes.get(..MAX_SCREENED_BODY_BYTES).unwrap_or(self.bytes);
        (read.len() < self.bytes.len() || !self.is_whole).then_some(read)
    }
}

/// Returns the values of all `fields` in a body, and in the query of the target: many servers read
/// both.
///
/// # Errors
/// Returns why riskgate found no value, if it found none.
pub fn read_field_values(
    headers: BodyHeaders<'_>,
    query: &[u8],
    body: ReceivedBody<'_>,
    fields: &[FieldPath],
) -> Result<FieldValues, UnreadCause> {
    let mut found = read_body_values(headers, body, fields);
    found.append_query(read_query_values(query, fields));
    found.or_unread_cause()
}

/// Returns the values of all `fields` in a query. `query` is the text behind `?`.
pub fn read_query_values(query: &[u8], fields: &[FieldPath]) -> FieldValues {
    match query.is_empty() {
        true => FieldValues::default(),
        false => urlencoded::read_values(query, fields),
    }
}

/// Returns the values of all `fields` in a body, or in the start of a longer body.
pub fn read_body_values(
    headers: BodyHeaders<'_>,
    body: ReceivedBody<'_>,
    fields: &[FieldPath],
) -> FieldValues {
    match (body.bytes, body.is_whole) {
        ([], true) => return FieldValues::default(),
        ([], false) => return FieldValues::of_unread_body(UnreadCause::TooLong),
        _ => {}
    }
    if headers.is_encoded {
        return FieldValues::of_unread_body(UnreadCause::Encoded);
    }
    let Some(content_type) = headers.content_type.and_then(ContentType::parse) else {
        return FieldValues::of_unread_body(UnreadCause::OtherType);
    };
    if content_type.charset == Charset::Other {
        return FieldValues::of_unread_body(UnreadCause::OtherCharset);
    }
    let kind = &content_type.kind;
    let start = body.start_if_cut();
    let body = start.map_or(body.bytes, |start| remove_cut_value(kind, start));
    let mut found = read_body_of_type(&content_type, body, fields);
    if content_type.has_other_boundary_for_django
        || has_value_in_another_kind(&content_type, body, fields, &found)
    {
        found.mark_unread(UnreadCause::Broken);
    }
    let are_ascii = found.values.iter().all(|value| value.is_ascii());
    let is_known = match content_type.charset {
        Charset::Utf8 => true,
        Charset::AsciiSuperset => are_ascii,
        _ => are_ascii && (*kind == BodyKind::Urlencoded || body.is_ascii()),
    };
    if !is_known {
        found.mark_unread(UnreadCause::OtherCharset);
    }
    if start.is_some() {
        found.unread = Some(UnreadCause::TooLong);
    }
    found
}

/// Removes the last value from the start of a longer body, because the value may be incomplete. In
/// JSON, a text without its closing quote is no value, so JSON needs no such rule.
fn remove_cut_value<'b>(kind: &BodyKind, start: &'b [u8]) -> &'b [u8] {
    let end = match kind {
        BodyKind::Urlencoded => memchr::memrchr(b'&', start).unwrap_or(0),
        BodyKind::Multipart { boundaries } => {
            let behind_last = |boundary: &String| {
                let at = memchr::memmem::rfind(start, format!("--{boundary}").as_bytes())?;
                Some(at + 2 + boundary.len())
            };
            boundaries.iter().filter_map(behind_last).max().unwrap_or(0)
        }
        BodyKind::Json | BodyKind::PlainText | BodyKind::Other => start.len(),
    };
    &start[..end]
}

/// Returns true if a server that reads the body as another kind of body may find a further value.
fn has_value_in_another_kind(
    content_type: &ContentType,
    body: &[u8],
    fields: &[FieldPath],
    found: &FieldValues,
) -> bool {
    let is_new = |text: &str| !found.values.iter().any(|known| known.eq_ignore_ascii_case(text));
    let boundaries = &content_type.disguised_boundaries;
    let is_multipart = matches!(content_type.kind, BodyKind::Multipart { .. });
    // Bottle reads each body that is not multipart as a form as well. OpenResty and Cowboy read a
    // multipart body so. A form without a `=` has no values.
    let may_be_form = (is_multipart
        || content_type.is_disguised_form
        || matches!(content_type.kind, BodyKind::Json | BodyKind::PlainText))
        && memchr::memchr(b'=', body).is_some();
    let around = if is_multipart { TextAroundPairs::Parts } else { TextAroundPairs::Json };
    may_be_arguments_of_action(&content_type.kind, body, found)
        || !boundaries.is_empty() && {
            let hidden = multipart::read_values(body, boundaries, fields);
            hidden.unread.is_some() || hidden.values.iter().any(|it| is_new(it))
        }
        || may_be_form && urlencoded::may_have_new_address(body, around, fields, is_new)
}

/// Returns true if React's server may read an address in JSON that riskgate has not read: the
/// address stands alone, as an argument of a server action, or elsewhere in the list.
fn may_be_arguments_of_action(kind: &BodyKind, body: &[u8], found: &FieldValues) -> bool {
    let is_json = matches!(kind, BodyKind::Json | BodyKind::PlainText) && may_be_arguments(body);
    // JavaScript takes an object with a `length` for a list.
    let may_be_list = !body.trim_ascii_start().starts_with(b"{")
        || memchr::memchr(b'\\', body).is_some()
        || memchr::memmem::find(body, b"length").is_some();
    is_json
        && may_be_list
        && !found.values.is_empty()
        && json::may_satisfy(body, |it| {
            has_nameless_address(it, &found.values) || refers_to_itself(it)
        })
}

fn read_body_of_type(content_type: &ContentType, body: &[u8], fields: &[FieldPath]) -> FieldValues {
    match &content_type.kind {
        BodyKind::Json => json::read_values(body, None, fields),
        BodyKind::Urlencoded => read_urlencoded(body, content_type.charset, fields),
        BodyKind::Multipart { boundaries } => multipart::read_values(body, boundaries, fields),
        // `fetch` and `sendBeacon` send a text with this type if the script names no type, and the
        // text may be JSON.
        BodyKind::PlainText => {
            let found = json::read_values(body, None, fields);
            match found.unread.is_some() && found.values.is_empty() {
                true => FieldValues::of_unread_body(UnreadCause::OtherType),
                false => found,
            }
        }
        BodyKind::Other => FieldValues::of_unread_body(UnreadCause::OtherType),
    }
}

fn read_urlencoded(body: &[u8], charset: Charset, fields: &[FieldPath]) -> FieldValues {
    let mut found = urlencoded::read_values(body, fields);
    if urlencoded::may_be_server_action(body, charset, fields, &found) {
        found.mark_unread(UnreadCause::Broken);
    }
    // Browsers encode the characters with which JSON begins, and `?`. Some servers remove a `?` or
    // a byte order mark before a form.
    let text = body.trim_ascii_start();
    if may_begin_json(body) || text.starts_with(b"?") {
        found.append(urlencoded::read_values(
            text.strip_prefix(b"?").or(text.strip_prefix(b"\xef\xbb\xbf")).unwrap_or(text),
            fields,
        ));
        found.mark_unread(UnreadCause::Broken);
    }
    found
}
