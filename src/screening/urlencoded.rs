//! Bodies of `application/x-www-form-urlencoded` (WHATWG URL standard section 5.1).

use super::field_path::FieldPath;
use super::field_values::{FieldValues, UnreadCause};

/// Reads all values of the fields. Some servers take a `;` for a separator and others do not, so a
/// field beside a `;` may have a value that was not read.
pub(super) fn read_values(body: &[u8], fields: &[FieldPath]) -> FieldValues {
    let mut found = FieldValues::default();
    for pair in body.split(|byte| *byte == b'&') {
        let mut has_field = false;
        for part in pair.split(|byte| *byte == b';') {
            let (name, value) = match memchr::memchr(b'=', part) {
                Some(at) => (&part[..at], &part[at + 1..]),
                None => (part, &b""[..]),
            };
            if memchr::memmem::find(name, b"%u").is_some() {
                // Only some servers decode `%u0065`.
                found.unread = Some(UnreadCause::Broken);
            }
            let name = decode(name);
            let name = String::from_utf8_lossy(&name);
            has_field |= found.push_if_field(&name, &decode(value), fields);
        }
        if pair.contains(&b';') && has_field {
            found.unread = Some(UnreadCause::Broken);
        }
    }
    found
}

/// Decodes percent-encoding and `+`. A `%` without two digits stays, as in all servers.
fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        rest = after;
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                rest = &after[2..];
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(*first),
        }
    }
    out
}
