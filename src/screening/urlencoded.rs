//! Bodies of `application/x-www-form-urlencoded` (WHATWG URL standard section 5.1).

use std::borrow::Cow;

use super::address_text::{DOTS, has_address};
use super::content_type::Charset;
use super::field_path::{FieldPath, is_plain_name};
use super::field_values::{FieldValues, UnreadCause};
use super::json;
use super::name_budget::NameBudget;
use super::server_parsers::{
    has_nameless_address, is_name_of_arguments, may_be_arguments, may_be_encoded_name_of_arguments,
    may_have_reference, refers_to_itself, remove_bad_percents, without_skipped_characters,
};
use crate::model::domain::{PERCENT_U_BYTES, decode_percent_u};
use crate::model::typed_address::{AT_SIGNS, has_at_sign};

/// The longest name that riskgate takes for that of the arguments of a server action.
const LONGEST_NAME_OF_ARGUMENTS: usize = 64;

/// Reads all values of the fields. Some servers take `;` for a separator. So if a pair with a field
/// has a `;`, the body counts as not read completely. So does a body with too many names that are
/// costly to read: riskgate leaves out further ones.
pub(super) fn read_values(body: &[u8], fields: &[FieldPath]) -> FieldValues {
    let (mut found, is_complete) = read_pairs(body, fields);
    if !is_complete {
        found.mark_unread(UnreadCause::Broken);
    }
    found
}

/// Returns true if React's server may read an address of a server action that is not in `found`:
/// Next.js takes a form of this type for the arguments of an action as well, although no client
/// sends an action so.
pub(super) fn may_be_server_action(
    body: &[u8],
    charset: Charset,
    fields: &[FieldPath],
    found: &FieldValues,
) -> bool {
    let pairs = || pairs(body).map(name_and_value);
    let has_prefix = |(name, _): (&[u8], &[u8])| {
        let name = decode(name);
        fields.iter().any(|field| field.may_be_behind_prefix(&to_text(&name)))
    };
    // A reference may lead to a text in another pair.
    let is_other_argument = |(name, value): (&[u8], &[u8])| {
        let (name, value) = (decode(name), decode(value));
        let may_have_address = has_at_sign(&to_text(&value)) || value.contains(&b'\\');
        name.iter().all(u8::is_ascii_digit) && *name != *b"0" && may_have_address
    };
    let (mut has_reference, mut has_new_address) = (false, false);
    for (name, value) in pairs() {
        if name.len() > LONGEST_NAME_OF_ARGUMENTS
            || !may_be_encoded_name_of_arguments(name)
            || !is_name_of_arguments(&to_text(&decode(name)))
        {
            continue;
        }
        let json = decode(value);
        if may_be_arguments(&json) {
            has_reference |= may_have_reference(&json);
            let named = json::read_values(&json, None, fields);
            // In some charsets, a later byte of a character may look like a `\`.
            has_new_address |= charset != Charset::Utf8 && !json.is_ascii();
            has_new_address |= named.values.iter().any(|value| !found.values.contains(value))
                || json::may_satisfy(&json, |it| {
                    named.unread.is_some()
                        || has_nameless_address(it, &found.values)
                        || refers_to_itself(it)
                });
        }
    }
    has_new_address
        || has_reference && pairs().any(|pair| has_prefix(pair) || is_other_argument(pair))
}

/// What is around the pairs that a server finds in a body of another kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TextAroundPairs {
    /// JSON, which Bottle reads as a form. Bottle splits it at `&` and `;`.
    Json,
    /// The parts of a multipart body. OpenResty (`ngx.req.get_post_args`) and Cowboy read each body
    /// as a form, and split it at `&`.
    Parts,
}

/// Returns true if a server that reads a body of another kind as a form may find an address that is
/// new. An address ends at the end of its line or of its JSON text, or where a link in a text ends.
/// If the JSON text has no address, mail programs take the next one behind it.
pub(super) fn may_have_new_address(
    body: &[u8],
    around: TextAroundPairs,
    fields: &[FieldPath],
    is_new: impl Fn(&str) -> bool,
) -> bool {
    let mut budget = NameBudget::default();
    let may_have_at_sign =
        |text: &[u8]| text.iter().any(|byte| matches!(byte, b'@' | b'%' | 0x80..));
    pairs(body).flat_map(|pair| around.split_pair(pair)).any(|pair| {
        let Some(at) = memchr::memchr(b'=', pair) else { return false };
        let (value, behind) = around.split_at_end_of_text(&pair[at + 1..]);
        if !(may_have_at_sign(value) || may_have_at_sign(behind))
            || !may_be_name_of_field(&pair[..at], fields, &mut budget)
        {
            return false;
        }
        // Many links have a `+` of an address as it is.
        let with_plus = value.split(|byte| *byte == b'+').collect::<Vec<_>>().join(&b"%2B"[..]);
        let texts = [decode(value), decode(&with_plus)].map(|it| around.unescape(&to_text(&it)));
        let is_known = |text: &String| !is_new(text) || !is_new(address_of_link(text));
        match has_at_sign(&texts[0]) {
            true => !texts.iter().any(is_known),
            false => to_text(&decode(behind))
                .split('"')
                .find(|text| has_at_sign(text))
                .is_some_and(|text| has_address(text) && is_new(text.trim())),
        }
    })
}

impl TextAroundPairs {
    /// Returns the pairs that servers read in a text between two `&`: the whole text, and in JSON
    /// the texts between `;`.
    fn split_pair(self, pair: &[u8]) -> impl Iterator<Item = &[u8]> {
        let is_split = self == TextAroundPairs::Json && memchr::memchr(b';', pair).is_some();
        let parts = is_split.then(|| split_at_each(b';', pair));
        std::iter::once(pair).chain(parts.into_iter().flatten())
    }

    /// Splits a value where the line or the JSON text ends in which its name stands. In a multipart
    /// body, nothing is behind the line.
    fn split_at_end_of_text(self, value: &[u8]) -> (&[u8], &[u8]) {
        let value = value.trim_ascii_start();
        let end_of_line = memchr::memchr2(b'\r', b'\n', value).unwrap_or(value.len());
        let line = &value[..end_of_line];
        if self == TextAroundPairs::Parts {
            return (line, b"");
        }
        let is_quote = |at: &usize| !is_escaped(line, *at);
        value.split_at(memchr::memchr_iter(b'"', line).find(is_quote).unwrap_or(line.len()))
    }

    /// Returns a text without the blanks around it. In JSON, `\n` may be the end of a line, and
    /// other escapes the end of a link.
    fn unescape(self, text: &str) -> String {
        match self {
            TextAroundPairs::Json if text.contains('\\') => {
                let text = text.replace("\\n", "\n").replace("\\r", "\r");
                decode_escapes_behind_address(&text).unwrap_or(text).trim().to_owned()
            }
            TextAroundPairs::Json | TextAroundPairs::Parts => text.trim().to_owned(),
        }
    }
}

/// Returns true if an odd number of backslashes stands before this place of a JSON text.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// Decodes the escapes of JSON behind the at sign of an address. `None` if one of them is no
/// character that ends a link, or if the domain may go on behind an escape: then a server that
/// decodes the escapes, and one that does not, may read different addresses.
fn decode_escapes_behind_address(text: &str) -> Option<String> {
    let (before, mut rest) = text.split_at(text.rfind(AT_SIGNS)?);
    let (_, behind_first) = rest.split_once('\\')?;
    let mut behind_dots = behind_first.split(DOTS).skip(1);
    if behind_dots.any(|it| it.starts_with(char::is_alphanumeric)) {
        return None;
    }
    let mut decoded = before.to_owned();
    while let Some(at) = rest.find('\\') {
        decoded.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let (length, c) = match escape.chars().next()? {
            't' => (1, '\t'),
            c @ ('"' | '/') => (1, c),
            'u' => (5, char::from_u32(u32::from_str_radix(escape.get(1..5)?, 16).ok()?)?),
            _ => return None,
        };
        rest = &escape[length..];
        // Behind a tag that some software removes, a domain may go on.
        let goes_on = c == '>' && rest.starts_with(|c: char| c.is_alphanumeric() || c == '.');
        if !ends_link(c) || goes_on {
            return None;
        }
        decoded.push(c);
    }
    decoded.push_str(rest);
    Some(decoded)
}

/// Returns true for a character that stands behind a link in a text, and in no domain.
fn ends_link(c: char) -> bool {
    c.is_whitespace() || "\"'<>()[]{},;#?/|*`\u{2026}".contains(c)
}

/// Returns the address with which a link in a text ends. Returns the whole text if the address may
/// go on behind the link, with a dot or a comment, or if another `@` stands there.
fn address_of_link(text: &str) -> &str {
    let (address, rest) = text.split_at(text.find(ends_link).unwrap_or(text.len()));
    match has_at_sign(rest) || rest.trim_start().starts_with(['.', '(', '[']) {
        true => text,
        false => address.trim_end_matches(['.', ':', '!', '?', '\\']),
    }
}

/// Returns true if a server may take the name of a pair for a field, or if that would be too costly
/// to find out. Uploads have many pairs. No server takes a name with a line in it, or with another
/// control character, for a field.
fn may_be_name_of_field(name: &[u8], fields: &[FieldPath], budget: &mut NameBudget) -> bool {
    let name = &name[..memchr::memchr(0, name).unwrap_or(name.len())];
    let name = name.trim_ascii();
    if name.iter().any(u8::is_ascii_control) {
        return false;
    }
    let is_as_written = name.is_ascii() && memchr::memchr2(b'%', b'+', name).is_none();
    if !is_as_written && !budget.allows_to_decode() {
        return true;
    }
    let plain_name = decode(name);
    let text = to_text(&plain_name);
    let mut may_be_field = |name: &str| {
        !budget.allows_to_compare(name, fields)
            || fields.iter().any(|field| field.matches_form_name(name))
    };
    may_be_field(&text)
        || !is_as_written && other_names(name, &plain_name).any(|name| may_be_field(&name))
}

/// Splits a text at each such byte. Without such a byte, the whole text is the only piece.
fn split_at_each(separator: u8, text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr::memchr_iter(separator, text).chain([text.len()]).map(move |end| {
        let piece = &text[start..end];
        start = end + 1;
        piece
    })
}

/// The pairs of a form, each as `name=value`.
fn pairs(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_at_each(b'&', body)
}

/// Splits a pair at its first `=`. Without a `=`, the value is empty.
fn name_and_value(pair: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'=', pair) {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, b""),
    }
}

/// Reads the values of the fields. Returns false beside them if riskgate has left out names that
/// are costly to read.
fn read_pairs(body: &[u8], fields: &[FieldPath]) -> (FieldValues, bool) {
    let mut found = FieldValues::default();
    let mut budget = NameBudget::default();
    let mut is_complete = true;
    for pair in pairs(body) {
        let mut has_field = false;
        for (index, part) in split_at_each(b';', pair).enumerate() {
            let (name, value) = name_and_value(part);
            let is_plain = is_plain_name(name);
            if is_plain && !fields.iter().any(|field| field.matches_plain_name(name)) {
                continue;
            }
            let value = || decode(value);
            if !is_plain && !budget.allows_to_decode() {
                is_complete = false;
                continue;
            }
            let plain_name = if is_plain { Cow::Borrowed(name) } else { decode(name) };
            let text = to_text(&plain_name);
            if !budget.allows_to_compare(&text, fields) {
                is_complete = false;
                continue;
            }
            let is_field = |field: &FieldPath| field.matches_form_name(&text);
            if index > 0 && !value().contains(&b'@') && fields.iter().any(is_field) {
                // Most servers read this as a part of the value before the `;`.
                has_field = true;
                continue;
            }
            if found.push_if_field(&text, value, fields) {
                if has_percent_u(part) {
                    found.mark_unread(UnreadCause::Broken);
                }
                has_field = true;
                continue;
            }
            if is_plain_name(plain_name.as_ref()) {
                continue;
            }
            for name in other_names(name, &plain_name) {
                if !budget.allows_to_compare(&name, fields) {
                    is_complete = false;
                } else if found.push_if_field(&name, value, fields) {
                    found.mark_unread(UnreadCause::Broken);
                }
            }
        }
        if has_field && pair.contains(&b';') {
            found.mark_unread(UnreadCause::Broken);
        }
    }
    (found, is_complete)
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
    // For short texts, this costs a third of `from_utf8_lossy`.
    std::str::from_utf8(name).map_or_else(|_| String::from_utf8_lossy(name), Cow::Borrowed)
}

/// Returns what some servers read in place of the decoded name.
fn other_names(name: &[u8], decoded: &[u8]) -> impl Iterator<Item = String> {
    let without_skipped = without_skipped_characters(&to_text(decoded));
    let by_others = name
        .contains(&b'%')
        .then(|| [decode_as_asp_net(name), decode(&remove_bad_percents(name)).into_owned()]);
    let by_others = by_others.into_iter().flatten().filter(move |name| *name != *decoded);
    without_skipped.into_iter().chain(by_others.map(|name| to_text(&name).into_owned()))
}

/// Returns true if ASP.NET or CGI.pm reads another text than other servers: see
/// [`decode_as_asp_net`].
fn has_percent_u(text: &[u8]) -> bool {
    memchr::memmem::find_iter(text, b"%u").any(|at| decode_percent_u(&text[at..]).is_some())
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
