//! The arguments of a server action, as React's server reads them (`decodeReply` in
//! react-server-dom): a JSON list, in which texts may stand for forms and for other parts.

use serde_json::Value;

/// Returns true if React's server may take the part with this name for the list of arguments. The
/// server compares the name, without an `S` at its start, with 0 as JavaScript compares a text with
/// a number. Blanks, `00`, `0x0` and `1e-999` are such names.
pub(in crate::screening) fn is_name_of_arguments(name: &str) -> bool {
    let is_blank = |c: char| c.is_whitespace() || c == '\u{feff}';
    let number = name.strip_prefix('S').unwrap_or(name).trim_matches(is_blank);
    let is_of_number = |c: char| c.is_ascii_digit() || "+-.eExXoObB".contains(c);
    let is_written_number =
        !number.starts_with('0') && number.bytes().all(|it| it.is_ascii_digit());
    number.chars().all(is_of_number) && (number.is_empty() || !is_written_number)
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

/// Returns true if no text in the value stands for another part, by the first characters of the
/// text: `$$` is an escaped `$`, `$D` is a date, `$n` is a large number, `$B` is a file, `$T` is a
/// value that the server can't read, and the others are `undefined`, `Infinity`, `NaN`, `-0` and
/// `-Infinity`.
pub(in crate::screening) fn has_no_reference(value: &Value) -> bool {
    const HARMLESS: [char; 9] = ['$', 'D', 'n', 'B', 'T', 'u', 'I', 'N', '-'];
    match value {
        Value::String(text) => text.strip_prefix('$').is_none_or(|it| it.starts_with(HARMLESS)),
        Value::Array(items) => items.iter().all(has_no_reference),
        Value::Object(members) => members.values().all(has_no_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Returns true if an address stands alone in the value, as no member of an object: the action may
/// take it for a field. A text with an address among other words is no such address.
pub(in crate::screening) fn has_nameless_address(value: &Value) -> bool {
    match value {
        Value::String(text) => is_lone_address(text),
        Value::Array(items) => items.iter().any(has_nameless_address),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns true for a text with an `@` and without blanks between its characters.
pub(in crate::screening) fn is_lone_address(text: &str) -> bool {
    text.contains('@') && !text.trim().contains(char::is_whitespace)
}
