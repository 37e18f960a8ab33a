//! The parsers of some servers, where they depart from the grammar. If such a parser reads another
//! value than riskgate, riskgate does not trust its own reading alone.
//!
//! Each function follows the source or the behaviour of the named parser.
//! `tests/e2e/one_path/browsers/form_parsers.rs` runs the parsers of PHP, Rack, Tomcat, Node,
//! Express and Python.

mod action_arguments;
mod encoded_words;
mod part_names;

pub(super) use action_arguments::{
    OtherParts, has_nameless_address, has_no_reference, is_name_of_arguments, may_be_arguments,
    may_be_encoded_name_of_arguments, may_have_reference, refers_to_itself,
};
pub(super) use encoded_words::{DecodedWords, decode_words_as_tomcat};
pub(super) use part_names::{
    count_part_names, read_part_name_as_formidable, read_part_name_as_php, read_part_name_as_rack,
    search_part_names,
};

use super::parameters::Parameter;
use crate::support::byte_sets::is_token_byte;

/// The most boundaries by which riskgate reads a body, to limit its work.
const MAX_BOUNDARIES: usize = 5;

/// Returns the boundaries that servers read in a content type with these parameters. If the type
/// has a boundary by the grammar, this boundary comes first. `None` if riskgate can't tell all
/// boundaries, or if servers may read more than [`MAX_BOUNDARIES`].
pub(super) fn read_boundaries_as_servers(
    content_type: &str,
    parameters: &[Parameter<'_>],
) -> Option<Vec<String>> {
    let mut boundaries = Boundaries::default();
    for parameter in parameters {
        match parameter.name.as_str() {
            "boundary" => boundaries.add(&parameter.value)?,
            // RFC 2231 has `boundary*=` and `boundary*0=`, which Django, Werkzeug and Tomcat read.
            name if name.starts_with("boundary*") => return None,
            _ => continue,
        }
        boundaries.add(read_unquoted_as_werkzeug(parameter).unwrap_or_default())?;
        // aiohttp removes blanks. Jetty, CherryPy and Python's email package remove other
        // characters as quotes.
        boundaries.add(parameter.value.trim())?;
        boundaries.add(parameter.value.trim_matches(['\'', '"', '<', '>', ' ']))?;
        match decode_words_as_tomcat(&parameter.value) {
            DecodedWords::Text(text) => boundaries.add(&text)?,
            DecodedWords::Unreadable => return None,
        }
    }
    boundaries.add(read_boundary_as_php(content_type).unwrap_or_default())?;
    search_boundaries(content_type).try_for_each(|boundary| boundaries.add(boundary))?;
    boundaries.add(&read_parameter_as_python(content_type, "boundary").unwrap_or_default())?;
    Some(boundaries.0)
}

/// Different boundaries that are not empty, in the order in which they were added.
#[derive(Default)]
struct Boundaries(Vec<String>);

impl Boundaries {
    /// Adds a boundary, unless it is empty or was added before. Returns `None` if it is one more
    /// than [`MAX_BOUNDARIES`].
    fn add(&mut self, boundary: &str) -> Option<()> {
        if boundary.is_empty() || self.0.iter().any(|added| added == boundary) {
            return Some(());
        }
        if self.0.len() == MAX_BOUNDARIES {
            return None;
        }
        self.0.push(boundary.to_owned());
        Some(())
    }
}

/// PHP (`rfc1867_post_handler` in main/rfc1867.c): the text behind the first `boundary` and the
/// next `=`. PHP searches for `boundary` in lower case first, and then in any case.
fn read_boundary_as_php(content_type: &str) -> Option<&str> {
    let lower = content_type.to_ascii_lowercase();
    let at = content_type.find("boundary").or_else(|| lower.find("boundary"))?;
    let (_, value) = content_type[at..].split_once('=')?;
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').map(|(value, _)| value),
        None => value.split([',', ';']).next(),
    }
}

/// Rack (`MULTIPART` in multipart.rb) and Mojolicious: the text behind a `boundary=`, wherever it
/// stands. Mojolicious allows blanks before the `=`. Returns the text behind each.
fn search_boundaries(content_type: &str) -> impl Iterator<Item = &str> {
    const NAME: &str = "boundary";
    let lower = content_type.to_ascii_lowercase();
    let ends: Vec<usize> = lower.match_indices(NAME).map(|(at, _)| at + NAME.len()).collect();
    ends.into_iter().filter_map(|end| {
        let value = content_type[end..].trim_start().strip_prefix('=')?.trim_start();
        value.strip_prefix('"').unwrap_or(value).split(['"', ';', ',']).next()
    })
}

/// Werkzeug (`parse_options_header` in http.py): an unquoted value ends at the first character that
/// no token may have.
pub(super) fn read_unquoted_as_werkzeug<'t>(parameter: &Parameter<'t>) -> Option<&'t str> {
    let value = parameter.raw_value;
    let end = value.bytes().position(|byte| !is_token_byte(byte)).unwrap_or(value.len());
    Some(&value[..end]).filter(|_| !parameter.is_quoted)
}

/// Python (`_parseparam` in email/message.py, which Django, cgi and python-multipart use). Returns
/// the value of the last parameter with this name. A quote behind any number of backslashes does
/// not end a quoted value. Angle brackets count as quotes.
pub(super) fn read_parameter_as_python(text: &str, name: &str) -> Option<String> {
    let mut found = None;
    let mut start = text.find(';')? + 1;
    let (mut is_quoted, mut is_escaped) = (false, false);
    let ends = text.bytes().enumerate().skip(start).filter_map(|(at, byte)| {
        is_quoted ^= byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\';
        (byte == b';' && !is_quoted).then_some(at)
    });
    for end in ends.chain([text.len()]).collect::<Vec<_>>() {
        if let Some((key, value)) = text[start..end].split_once('=')
            && key.trim().eq_ignore_ascii_case(name)
        {
            let value = value.trim();
            let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            let unquote = |value: &str| value.replace("\\\\", "\\").replace("\\\"", "\"");
            let bracketed = value.strip_prefix('<').and_then(|value| value.strip_suffix('>'));
            found = Some(quoted.map_or_else(|| bracketed.unwrap_or(value).to_owned(), unquote));
        }
        start = end + 1;
    }
    found
}

/// Tomcat up to 9 (`getCharsetFromContentType` in coyote/Request.java): the text behind the first
/// `charset=`, up to the next `;`.
pub(super) fn read_charset_as_tomcat(content_type: &str) -> Option<&str> {
    const NAME: &str = "charset=";
    let at = memchr::memmem::find(content_type.as_bytes(), NAME.as_bytes())?;
    let value = &content_type[at + NAME.len()..];
    let value = value.split(';').next().unwrap_or_default().trim();
    let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    Some(unquoted.unwrap_or(value).trim()).filter(|value| !value.is_empty())
}

/// CherryPy: removes each `%` that two hexadecimal digits do not follow.
pub(super) fn remove_bad_percents(name: &[u8]) -> Vec<u8> {
    let is_digit = |at: usize| name.get(at).is_some_and(u8::is_ascii_hexdigit);
    let is_bad = |at: usize| name[at] == b'%' && !(is_digit(at + 1) && is_digit(at + 2));
    (0..name.len()).filter(|&at| !is_bad(at)).map(|at| name[at]).collect()
}

/// Node skips a byte order mark, and some servers skip bytes that they can't decode, as PHP does
/// with `JSON_INVALID_UTF8_IGNORE`. Returns the name without both; `None` if it has neither.
pub(super) fn without_skipped_characters(name: &str) -> Option<String> {
    const SKIPPED: [char; 2] = ['\u{feff}', char::REPLACEMENT_CHARACTER];
    (!name.is_ascii() && name.contains(SKIPPED)).then(|| name.replace(SKIPPED, ""))
}

/// Returns true if a server that reads each body as JSON, whatever its type, may find a value at
/// the start of this text. Go's `json.Decoder` and Jackson ignore what is behind the first value.
/// Ruby's `JSON.parse` skips comments before the value, and Gson skips `#` and `)]}'`.
pub(super) fn may_begin_json(text: &[u8]) -> bool {
    let start = text.iter().position(|byte| *byte > b' ').unwrap_or(text.len());
    match &text[start..] {
        [b'{' | b'[' | b'"' | b'/' | b'#' | b')' | 0xfe | 0xff, ..] => true,
        // Some servers remove a byte order mark, and further blanks.
        rest @ [0x80..=0xff, ..] => {
            let first = String::from_utf8_lossy(&rest[..rest.len().min(4)]);
            first.starts_with(|c: char| c == '\u{feff}' || c.is_whitespace())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
