//! Bodies of `application/x-www-form-urlencoded` (WHATWG URL standard section 5.1).

use std::borrow::Cow;

use super::field_path::FieldPath;
use super::field_values::{FieldValues, UnreadCause};
use super::server_parsers::remove_bad_percents;
use crate::model::domain::{PERCENT_U_BYTES, decode_percent_u};

/// The most pairs of a form that riskgate reads. Rack reads no more, and PHP reads 1,000.
const MAX_PAIRS: usize = 4_096;
/// The most names of a form that riskgate compares with all spellings of the fields.
const MAX_COSTLY_NAMES: usize = 256;

/// Reads all values of the fields. Some servers take `;` for a separator. So if a pair with a field
/// has a `;`, the body counts as not read completely. So does a body with too many pairs, or with
/// too many names that are costly to compare.
pub(super) fn read_values(body: &[u8], fields: &[FieldPath]) -> FieldValues {
    let (mut found, is_cut) = read_pairs(body, fields);
    if is_cut {
        found.mark_unread(UnreadCause::Broken);
    }
    found
}

/// Returns true if a server that reads the body as a form may find a value that is new.
pub(super) fn may_have_value(
    body: &[u8],
    fields: &[FieldPath],
    is_new: impl Fn(&String) -> bool,
) -> bool {
    let (found, is_cut) = read_pairs(body, fields);
    is_cut || found.values.iter().any(is_new)
}

/// Reads the values of the fields. Returns true beside them if there were too many pairs, or too
/// many names that are costly to compare, and the rest was not read.
fn read_pairs(body: &[u8], fields: &[FieldPath]) -> (FieldValues, bool) {
    let mut found = FieldValues::default();
    let (mut pair_count, mut costly_count) = (0, 0);
    for pair in body.split(|byte| *byte == b'&') {
        let mut has_field = false;
        for (index, part) in pair.split(|byte| *byte == b';').enumerate() {
            let (name, value) = match memchr::memchr(b'=', part) {
                Some(at) => (&part[..at], &part[at + 1..]),
                None => (part, &b""[..]),
            };
            let value = || decode(value);
            let plain_name = decode(name);
            pair_count += 1;
            costly_count += usize::from(is_costly(&plain_name, fields));
            if pair_count > MAX_PAIRS || costly_count > MAX_COSTLY_NAMES {
                return (found, true);
            }
            let is_field = |field: &FieldPath| field.matches_form_name(&to_text(&plain_name));
            if index > 0 && !value().contains(&b'@') && fields.iter().any(is_field) {
                // Most servers read this as a part of the value before the `;`.
                has_field = true;
                continue;
            }
            has_field |= found.push_if_field(&to_text(&plain_name), value, fields);
            if !name.contains(&b'%') {
                continue;
            }
            let without_bad_percents = remove_bad_percents(name);
            let other_names = [decode_as_asp_net(name), decode(&without_bad_percents).into_owned()];
            for name in other_names {
                if name != *plain_name && found.push_if_field(&to_text(&name), value, fields) {
                    found.mark_unread(UnreadCause::Broken);
                }
            }
        }
        if pair.contains(&b';') && has_field {
            found.mark_unread(UnreadCause::Broken);
        }
    }
    (found, false)
}

fn is_costly(name: &[u8], fields: &[FieldPath]) -> bool {
    fields.iter().any(|field| field.is_costly_to_match(&to_text(name)))
}

/// Decodes percent-encoding and `+`. A `%` without two hexadecimal digits stays, as most servers
/// leave it.
pub(super) fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr2(b'%', b'+', rest) {
        let (plain, encoded) = rest.split_at(at);
        out.extend_from_slice(plain);
        let digit = |at: usize| encoded.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let is_percent = encoded[0] == b'%';
        let (byte, length) = match (digit(1), digit(2)) {
            (Some(high), Some(low)) if is_percent => ((high << 4 | low) as u8, 3),
            _ if is_percent => (b'%', 1),
            _ => (b' ', 1),
        };
        out.push(byte);
        rest = &encoded[length..];
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

fn to_text(name: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(name)
}

/// ASP.NET (`HttpUtility.UrlDecode`): decodes `%u0065` as well as percent-encoding and `+`.
fn decode_as_asp_net(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, b"%u") {
        decoded.extend_from_slice(&decode(&rest[..at]));
        match decode_percent_u(&rest[at..]) {
            Some(c) => {
                decoded.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[at + PERCENT_U_BYTES..];
            }
            None => {
                decoded.extend(b"%u");
                rest = &rest[at + 2..];
            }
        }
    }
    decoded.extend_from_slice(&decode(rest));
    decoded
}
