//! Bodies of `application/x-www-form-urlencoded` (WHATWG URL standard section 5.1).

use super::field_path::FieldPath;
use super::field_values::FieldValues;

/// Reads all values of the fields. Some servers take a `;` for a separator, others do not, so both
/// readings are read.
pub(super) fn read_values(body: &[u8], fields: &[FieldPath]) -> FieldValues {
    let mut found = FieldValues::default();
    let mut read_pair = |pair: &[u8]| {
        let (name, value) = match memchr::memchr(b'=', pair) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        // A name that is not UTF-8 is no name of a field.
        if let Ok(name) = String::from_utf8(decode(name))
            && fields.iter().any(|field| field.matches_form_name(&name))
        {
            found.push_bytes(&decode(value));
        }
    };
    for pair in body.split(|byte| *byte == b'&') {
        read_pair(pair);
        if pair.contains(&b';') {
            pair.split(|byte| *byte == b';').for_each(&mut read_pair);
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
        (out, rest) = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                (out, &after[2..])
            }
            (b'+', ..) => {
                out.push(b' ');
                (out, after)
            }
            _ => {
                out.push(*first);
                (out, after)
            }
        };
    }
    out
}
