//! The arguments of a server action, as React's server reads them (`decodeReply` in
//! react-server-dom): a JSON list, in which texts may stand for forms and for other parts.

use serde_json::Value;

use crate::screening::address_text::is_new_lone_address;

/// Returns true if React's server may take the part with this name for the list of arguments. The
/// server compares the name, without an `S` at its start, with 0 as JavaScript compares a text with
/// a number. Blanks, `00`, `0x0` and `1e-999` are such names.
pub(in crate::screening) fn is_name_of_arguments(name: &str) -> bool {
    let is_blank = |c: char| c.is_whitespace() || c == '\u{feff}';
    let number = name.strip_prefix('S').unwrap_or(name).trim_matches(is_blank);
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let is_written_number = || !number.starts_with('0') && number.bytes().all(is_digit);
    match number.is_empty() {
        true => name != "S",
        false => {
            number.bytes().all(is_of_number) && number.bytes().any(is_digit) && !is_written_number()
        }
    }
}

/// Returns true if the name, as a form of this type writes it, may be a name of arguments when it
/// is decoded. This test is quick, and true for some further names.
pub(in crate::screening) fn may_be_encoded_name_of_arguments(name: &[u8]) -> bool {
    let is_other_letter =
        |byte: &u8| byte.is_ascii_alphabetic() && *byte != b'S' && !is_of_number(*byte);
    !name.iter().any(is_other_letter) || name.contains(&b'%')
}

/// Returns true for a character with which JavaScript may write the number 0.
fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' | b'x' | b'X')
        || matches!(byte, b'o' | b'O' | b'b' | b'B')
}

/// Returns true if React's server may read this text as JSON with a text in it.
pub(in crate::screening) fn may_be_arguments(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start();
    matches!(text.first(), Some(b'[' | b'{' | b'"'))
}

/// Returns true if a text in this JSON may be a reference.
pub(in crate::screening) fn may_have_reference(json: &[u8]) -> bool {
    memchr::memchr2(b'$', b'\\', json).is_some()
}

/// What the other parts of a body are, to which a text in an argument may refer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::screening) enum OtherParts {
    /// Files, which React's server never takes for texts.
    Files,
    /// Some of them may be texts.
    Texts,
}

/// Returns true if no text in the value stands for a text in another part, by the first characters
/// of the text: `$$` is an escaped `$`, `$D` is a date, `$n` is a large number, `$B` is a file (or,
/// in React 19.0, any part), `$T` is a value that the server can't read, and the others are
/// `undefined`, `Infinity`, `NaN`, `-0` and `-Infinity`.
pub(in crate::screening) fn has_no_reference(value: &Value, others: OtherParts) -> bool {
    const HARMLESS: [char; 8] = ['$', 'D', 'n', 'T', 'u', 'I', 'N', '-'];
    let is_harmless = |behind: &str| {
        behind.starts_with(HARMLESS) || others == OtherParts::Files && behind.starts_with('B')
    };
    match value {
        Value::String(text) => text.strip_prefix('$').is_none_or(is_harmless),
        Value::Array(items) => items.iter().all(|item| has_no_reference(item, others)),
        Value::Object(members) => members.values().all(|item| has_no_reference(item, others)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Returns true if an address stands alone in the value, as no member of an object: the action may
/// take it for a field. An address that is `known`, as the value of a field, does not count. An
/// object with a `length` counts as a list of the members whose names are indexes, as JavaScript
/// takes it.
pub(in crate::screening) fn has_nameless_address(value: &Value, known: &[String]) -> bool {
    let is_index = |name: &str| name.parse::<u64>().is_ok_and(|index| index.to_string() == name);
    let has_address = |item: &Value| has_nameless_address(item, known);
    match value {
        Value::String(text) => is_new_lone_address(text, known),
        Value::Array(items) => items.iter().any(has_address),
        Value::Object(members) if members.contains_key("length") => {
            members.iter().any(|(name, item)| is_index(name) && has_address(item))
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns true if a text in the value stands for another text of the same JSON, such as `$0:1:k`.
pub(in crate::screening) fn refers_to_itself(value: &Value) -> bool {
    let is_reference = |text: &str| {
        let behind = text.strip_prefix('$').unwrap_or_default();
        let number = behind.trim_start_matches(|c: char| !c.is_ascii_digit() && c != ':');
        number.starts_with('0') && number.contains(':')
    };
    match value {
        Value::String(text) => is_reference(text),
        Value::Array(items) => items.iter().any(refers_to_itself),
        Value::Object(members) => members.values().any(refers_to_itself),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
