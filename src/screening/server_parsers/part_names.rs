//! The names that servers read in the header of a part.

use crate::support::byte_sets::is_token_byte;

/// PHP (`php_ap_getword` in main/rfc1867.c): an apostrophe quotes as a quote does, anywhere in a
/// parameter. The last name counts.
pub(in crate::screening) fn read_part_name_as_php(disposition: &str) -> Option<String> {
    let mut name = None;
    let mut rest = disposition;
    while !rest.is_empty() {
        let (parameter, after) = split_as_php(rest.trim_ascii_start(), ';');
        let (key, value) = split_as_php(parameter, '=');
        if parameter.contains('=') && key.eq_ignore_ascii_case("name") {
            name = Some(unquote_as_php(value.trim_ascii_start()));
        }
        rest = after;
    }
    name
}

/// Returns the text before the first `stop` and the text behind it. A `stop` in quotes does not
/// count.
fn split_as_php(text: &str, stop: char) -> (&str, &str) {
    let mut quote = None;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(open) if c == '\\' => is_escaped = text[at + 1..].starts_with(open),
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == stop => return (&text[..at], text[at..].trim_start_matches(stop)),
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None => {}
        }
    }
    (text, "")
}

fn unquote_as_php(text: &str) -> String {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let text = match quote {
        Some(_) => &text[1..],
        None => text.split_ascii_whitespace().next().unwrap_or_default(),
    };
    let mut value = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == quote => break,
            '\\' if chars.peek().is_some_and(|&c| c == '\\' || Some(c) == quote) => {
                value.extend(chars.next());
            }
            c => value.push(c),
        }
    }
    value
}

/// The characters for which `\s` stands in Ruby.
const RUBY_BLANKS: [char; 6] = [' ', '\t', '\r', '\n', '\u{b}', '\u{c}'];

/// Rack (`handle_mime_head` in multipart/parser.rb, up to 3.0). Returns the first of these texts:
/// - behind the last `; name=` that stands between a `Content-Disposition:` and the next colon,
/// - the value of `Content-ID`,
/// - the value of `Content-Type`, with `[]` behind it.
pub(in crate::screening) fn read_part_name_as_rack(header: &str) -> Option<String> {
    const DISPOSITION: &str = "content-disposition:";
    let lower = header.to_ascii_lowercase();
    let line_behind = |name: &str| {
        let (_, rest) = header.split_at(lower.find(name)? + name.len());
        rest.trim_start_matches(RUBY_BLANKS).split(['\r', '\n']).next()
    };
    let of_disposition = lower.match_indices(DISPOSITION).find_map(|(at, _)| {
        let start = at + DISPOSITION.len();
        let end = lower[start..].find(':').map_or(lower.len(), |length| start + length);
        let names = lower[start..end].rmatch_indices("name=");
        names
            .map(|(at, name)| (start + at, start + at + name.len()))
            .filter(|(at, _)| header[start..*at].trim_end_matches(RUBY_BLANKS).ends_with(';'))
            .find_map(|(_, behind)| parse_value_as_rack(&header[behind..]))
    });
    let name = of_disposition.or_else(|| line_behind("content-id:").map(str::to_owned));
    name.filter(|name| !name.is_empty())
        .or_else(|| Some(format!("{}[]", line_behind("content-type:")?)))
}

/// Parses a quoted value or a token, as `VALUE` in multipart.rb does.
fn parse_value_as_rack(text: &str) -> Option<String> {
    let Some(quoted) = text.strip_prefix('"') else {
        let is_end = |c: char| RUBY_BLANKS.contains(&c) || "()<>,;:\\\"/[]?=".contains(c);
        let value = text.split(is_end).next().unwrap_or_default();
        return (!value.is_empty()).then(|| value.to_owned());
    };
    // A quote behind a backslash ends the value only if all quotes are behind a backslash.
    let quotes = || quoted.match_indices('"').map(|(at, _)| at);
    let end =
        quotes().find(|&at| !quoted[..at].ends_with('\\')).or_else(|| quotes().next_back())?;
    let mut value = String::new();
    let mut chars = quoted[..end].chars();
    while let Some(c) = chars.next() {
        value.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    Some(value)
}

/// formidable (`getFieldName` in plugins/multipart.js): the text behind the first `name=`, even in
/// quotes. A `name=` behind a letter, a digit or `_` does not count.
pub(in crate::screening) fn read_part_name_as_formidable(disposition: &str) -> Option<String> {
    let lower = disposition.to_ascii_lowercase();
    lower.match_indices("name=").find_map(|(at, name)| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if disposition[..at].ends_with(is_word) {
            return None;
        }
        let value = &disposition[at + name.len()..];
        if let Some((quoted, _)) = value.strip_prefix('"').and_then(|it| it.split_once('"')) {
            return Some(quoted.to_owned());
        }
        let is_end = |c: char| c.is_whitespace() || "()<>{}[]@,;:\\\"?=/".contains(c);
        value.split(is_end).next().filter(|value| !value.is_empty()).map(str::to_owned)
    })
}

/// Once riskgate has found this many names of one part, it searches no further `name=`: a part may
/// have one name less.
const MAX_SEARCHED_NAMES: usize = 9;
/// From version 3.1 on, Rack skips a disposition of more bytes, and reads `Content-ID`.
const MAX_RACK_DISPOSITION_BYTES: usize = 1_536;

/// Returns the names in the header of a part that some parser may read: the text behind each
/// `name=` that is no part of a word, and in a long header the value of `Content-ID`. Stops after
/// [`MAX_SEARCHED_NAMES`]. Werkzeug, Sanic, multiparty and Undertow read some of these names even
/// in a quoted value.
pub(in crate::screening) fn search_part_names(header: &str) -> Vec<String> {
    let lower = header.to_ascii_lowercase();
    let mut names: Vec<String> = Vec::new();
    for end in ends_of_name(&lower) {
        if names.len() >= MAX_SEARCHED_NAMES {
            break;
        }
        let behind = header[end..].trim_start();
        let Some(value) = behind.strip_prefix('=').map(str::trim_start) else { continue };
        let candidates = match value.strip_prefix('"') {
            Some(quoted) => [quoted.split('"').next(), None],
            None => [
                value.split(|c: char| !c.is_ascii() || !is_token_byte(c as u8)).next(),
                value.split([';', '\r', '\n']).next().map(str::trim_end),
            ],
        };
        for candidate in candidates.into_iter().flatten() {
            if !candidate.is_empty() && !names.iter().any(|name| name == candidate) {
                names.push(candidate.to_owned());
            }
        }
    }
    if header.len() > MAX_RACK_DISPOSITION_BYTES
        && let Some(at) = lower.find("content-id:")
    {
        let value = header[at + "content-id:".len()..].split(['\r', '\n']).next();
        names.extend(value.map(|value| value.trim().to_owned()));
    }
    names
}

/// Returns how often `name=` or `name*` is in the header of a part, and no part of a word. This
/// count is quick.
pub(in crate::screening) fn count_part_names(header: &str) -> usize {
    let lower = header.to_ascii_lowercase();
    let is_of_parameter = |end: &usize| lower[*end..].trim_start().starts_with(['=', '*']);
    ends_of_name(&lower).filter(is_of_parameter).count()
}

/// Returns the offset behind each `name` that is no part of a word.
fn ends_of_name(lower: &str) -> impl Iterator<Item = usize> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let places =
        lower.match_indices("name").filter(move |(at, _)| !lower[..*at].ends_with(is_word));
    places.map(|(at, name)| at + name.len())
}

#[cfg(test)]
mod tests;
