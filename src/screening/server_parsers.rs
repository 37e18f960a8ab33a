//! How the parsers of some servers read what riskgate reads by the grammar. If such a parser reads
//! something else, riskgate does not trust its own reading alone.
//!
//! Each function follows the source of the named parser; `tests/e2e/form_parsers.rs` runs the
//! parsers.

use std::borrow::Cow;

use base64::Engine;

use super::parameters::Parameter;
use crate::support::byte_sets::is_token_byte;

/// The most boundaries that are tried. It bounds the work for a body.
const MAX_BOUNDARIES: usize = 8;

/// Returns the boundaries that servers read out of a content type with these parameters, the one by
/// the grammar first. `None` if riskgate can't tell them all.
pub(super) fn read_boundaries_as_servers(
    content_type: &str,
    parameters: &[Parameter<'_>],
) -> Option<Vec<String>> {
    let mut boundaries: Vec<String> = Vec::new();
    let mut add = |boundary: Option<&str>| {
        let boundary = boundary.filter(|it| !it.is_empty() && !boundaries.iter().any(|b| b == it));
        boundaries.extend(boundary.map(str::to_owned));
    };
    for parameter in parameters {
        match parameter.name.as_str() {
            "boundary" => add(Some(&parameter.value)),
            // RFC 2231 has `boundary*=` and `boundary*0=`, which Django, Werkzeug and Tomcat read.
            name if name.starts_with("boundary*") => return None,
            _ => continue,
        }
        add(read_boundary_as_werkzeug(parameter));
        // aiohttp removes blanks, and Jetty apostrophes.
        add(Some(parameter.value.trim()));
        add(Some(parameter.value.trim_matches('\'')));
        match decode_words_as_tomcat(&parameter.value) {
            DecodedWords::Text(text) => add(Some(&text)),
            DecodedWords::Unreadable => return None,
        }
    }
    add(read_boundary_as_php(content_type));
    search_boundaries(content_type).for_each(|boundary| add(Some(boundary)));
    add(read_parameter_as_python(content_type, "boundary").as_deref());
    (boundaries.len() <= MAX_BOUNDARIES).then_some(boundaries)
}

/// PHP (`rfc1867_post_handler` in main/rfc1867.c): behind the first `boundary`, in this case before
/// any other, and the next `=`.
fn read_boundary_as_php(content_type: &str) -> Option<&str> {
    let lower = content_type.to_ascii_lowercase();
    let at = content_type.find("boundary").or_else(|| lower.find("boundary"))?;
    let (_, value) = content_type[at..].split_once('=')?;
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').map(|(value, _)| value),
        None => value.split([',', ';']).next(),
    }
}

/// Rack (`MULTIPART` in multipart.rb) and Mojolicious search for `boundary=`; Mojolicious allows
/// blanks before the `=`. Returns what is behind each.
fn search_boundaries(content_type: &str) -> impl Iterator<Item = &str> {
    const NAME: &str = "boundary";
    let lower = content_type.to_ascii_lowercase();
    let ends: Vec<usize> = lower.match_indices(NAME).map(|(at, _)| at + NAME.len()).collect();
    ends.into_iter().take(MAX_BOUNDARIES + 1).filter_map(|end| {
        let value = content_type[end..].trim_start().strip_prefix('=')?.trim_start();
        value.strip_prefix('"').unwrap_or(value).split(['"', ';', ',']).next()
    })
}

/// Werkzeug (`parse_options_header` in http.py): an unquoted value ends at the first character that
/// is none of a token.
fn read_boundary_as_werkzeug<'t>(parameter: &Parameter<'t>) -> Option<&'t str> {
    let value = parameter.raw_value;
    let end = value.bytes().position(|byte| !is_token_byte(byte)).unwrap_or(value.len());
    Some(&value[..end]).filter(|_| !parameter.is_quoted)
}

/// Python (`_parseparam` in email/message.py, which Django, cgi and python-multipart use): a quote
/// behind a backslash does not end a quoted value, however many backslashes are there, and the last
/// parameter of a name counts. Angle brackets are quotes. Returns the value of the parameter.
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
    let (_, value) = content_type.split_once("charset=")?;
    let value = value.split(';').next().unwrap_or_default().trim();
    let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    Some(unquoted.unwrap_or(value).trim()).filter(|value| !value.is_empty())
}

/// PHP (`php_ap_getword` in main/rfc1867.c): an apostrophe quotes like a quote does, anywhere in a
/// parameter, and the last name counts.
pub(super) fn read_part_name_as_php(disposition: &str) -> Option<String> {
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

/// Returns the text before `stop` and the text behind it. A `stop` in quotes does not count.
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

/// The characters that `\s` stands for in Ruby.
const RUBY_BLANKS: [char; 6] = [' ', '\t', '\r', '\n', '\u{b}', '\u{c}'];

/// Rack (`handle_mime_head` in multipart/parser.rb, up to 3.0): the last `; name=` before the next
/// colon behind any `Content-Disposition:` in the header of the part. If there is none,
/// `Content-ID`; if that is empty, the type and `[]`.
pub(super) fn read_part_name_as_rack(header: &str) -> Option<String> {
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

/// Parses what `VALUE` in multipart.rb matches: a quoted value, or a token.
fn parse_value_as_rack(text: &str) -> Option<String> {
    let Some(quoted) = text.strip_prefix('"') else {
        let is_end = |c: char| RUBY_BLANKS.contains(&c) || "()<>,;:\\\"/[]?=".contains(c);
        let value = text.split(is_end).next().unwrap_or_default();
        return (!value.is_empty()).then(|| value.to_owned());
    };
    // A quote behind a backslash ends the value only if no other quote does.
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

/// formidable (`getFieldName` in plugins/multipart.js): behind the first `name=` that no letter,
/// digit or `_` precedes, even in quotes.
pub(super) fn read_part_name_as_formidable(disposition: &str) -> Option<String> {
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
        let is_end = |c: char| c.is_whitespace() || "()<>{}[]@,;:\"?=/".contains(c);
        value.split(is_end).next().filter(|value| !value.is_empty()).map(str::to_owned)
    })
}

/// CherryPy drops a `%` that no two digits follow.
pub(super) fn remove_bad_percents(name: &[u8]) -> Vec<u8> {
    let is_digit = |at: usize| name.get(at).is_some_and(u8::is_ascii_hexdigit);
    let is_bad = |at: usize| name[at] == b'%' && !(is_digit(at + 1) && is_digit(at + 2));
    (0..name.len()).filter(|&at| !is_bad(at)).map(|at| name[at]).collect()
}

/// A text whose encoded words, such as `=?utf-8?Q?email?=`, are decoded (RFC 2047).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodedWords {
    /// The text. Without an encoded word, it is the same as before.
    Text(String),
    /// A word that riskgate can't decode, and that some servers may decode.
    Unreadable,
}

/// Tomcat (`decodeText` in fileupload/util/mime/MimeUtility.java): words with blanks between them,
/// of which the encoded ones are decoded. What follows the `?=` of a word is dropped.
pub(super) fn decode_words_as_tomcat(text: &str) -> DecodedWords {
    if !text.contains("=?") {
        return DecodedWords::Text(text.to_owned());
    }
    let is_blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let (mut decoded, mut blanks) = (String::new(), "");
    let mut is_behind_encoded = false;
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(is_blank).unwrap_or(rest.len()));
        if !word.is_empty() {
            let (word, is_encoded) = match decode_word(word) {
                Some(Some(text)) => (Cow::Owned(text), true),
                Some(None) => return DecodedWords::Unreadable,
                None => (Cow::Borrowed(word), false),
            };
            // Blanks between two encoded words do not count.
            if !(is_encoded && is_behind_encoded) {
                decoded.push_str(blanks);
            }
            decoded.push_str(&word);
            is_behind_encoded = is_encoded;
        }
        let (between, words) = after.split_at(after.find(|c| !is_blank(c)).unwrap_or(after.len()));
        (blanks, rest) = (between, words);
    }
    DecodedWords::Text(decoded)
}

/// Returns the text of an encoded word; `Some(None)` if riskgate can't decode it, and `None` if it
/// is no encoded word.
fn decode_word(word: &str) -> Option<Option<String>> {
    let (charset, rest) = word.strip_prefix("=?")?.split_once('?')?;
    let (encoding, rest) = rest.split_once('?')?;
    let (text, _) = rest.split_once("?=")?;
    let bytes = match encoding {
        "B" | "b" => base64::engine::general_purpose::STANDARD.decode(text).ok(),
        "Q" | "q" => decode_q(text),
        _ => None,
    };
    let text = bytes.and_then(|bytes| match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => Some(String::from_utf8_lossy(&bytes).into_owned()),
        "iso-8859-1" => Some(bytes.into_iter().map(char::from).collect()),
        _ => None,
    });
    Some(text)
}

/// Decodes the Q encoding (RFC 2047 section 4.2).
fn decode_q(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'_' => bytes.push(b' '),
            b'=' => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &after[2..];
            }
            byte => bytes.push(*byte),
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::parameters::parse_value_with_parameters;
    use super::*;

    #[test]
    fn each_boundary_that_a_server_reads_is_returned() {
        for (parameters, boundaries) in [
            ("boundary=----WebKitFormBoundaryX", &["----WebKitFormBoundaryX"][..]),
            ("boundary=\"a b\"", &["a b"]),
            // PHP.
            ("x=\"boundary=evil\"; boundary=good", &["good", "evil\"", "evil"]),
            ("xboundary=evil; boundary=good", &["good", "evil"]),
            ("Boundary=my-boundary; x=evil", &["my-boundary", "evil"]),
            ("boundary=evil; boundary=good", &["evil", "good"]),
            // Rack.
            ("boundary=good; x=\"boundary=evil\"", &["good", "evil"]),
            ("boundary=good; x=\"boundary=evil\"; y=\"boundary=\"", &["good", "evil"]),
            ("boundary=\"good,evil\"", &["good,evil", "good"]),
            ("boundary=\"good;evil\"", &["good;evil", "good"]),
            // PHP and Rack.
            ("boundary=good ; x=y", &["good", "good "]),
            // Mojolicious.
            ("boundary=good; x=\"boundary =evil\"", &["good", "evil"]),
            // aiohttp, Jetty and the email package of Python.
            ("boundary=\" good\"", &[" good", "good"]),
            ("boundary='good'", &["'good'", "good"]),
            ("boundary=<good>", &["<good>", "good"]),
            // Werkzeug.
            ("boundary=good=evil", &["good=evil", "good"]),
            // Tomcat.
            ("boundary=\"=?utf-8?Q?evil?=x\"", &["=?utf-8?Q?evil?=x", "evil"]),
            // Django and cgi.
            (
                r#"x="\\"; boundary=good; y="\"; boundary=evil; z="; w="boundary=good""#,
                &["good", "evil"],
            ),
            (r#"boundary="a\b""#, &["ab", r"a\b"]),
        ] {
            let text = format!("multipart/form-data; {parameters}");
            let parsed = parse_value_with_parameters(&text);
            let found = read_boundaries_as_servers(&text, &parsed.parameters).unwrap();
            assert_eq!(found, boundaries, "{text}");
        }
    }

    #[test]
    fn a_content_type_with_too_many_boundaries_is_not_read() {
        let text: String = (0..9).map(|number| format!("; boundary=b{number}")).collect();
        let text = format!("multipart/form-data{text}");
        let parsed = parse_value_with_parameters(&text);
        assert_eq!(read_boundaries_as_servers(&text, &parsed.parameters), None);
    }

    #[test]
    fn python_counts_quotes_without_a_backslash_before_them() {
        for (text, value) in [
            ("form-data; name=\"email\"", Some("email")),
            ("form-data; name = email ; x", Some("email")),
            ("form-data; name=a; NAME=\"b\"", Some("b")),
            (r#"form-data; x="\\"; name=email; y=";""#, None),
            (r#"form-data; x="\\"; y="; name=email"#, Some("email")),
            (r#"form-data; name="a\\b\"c""#, Some(r#"a\b"c"#)),
            ("form-data", None),
        ] {
            assert_eq!(read_parameter_as_python(text, "name").as_deref(), value, "{text}");
        }
    }

    #[test]
    fn tomcat_finds_a_charset_in_any_parameter() {
        for (text, charset) in [
            ("a/b; charset=utf-16", Some("utf-16")),
            ("a/b; charset=\"utf-16\"", Some("utf-16")),
            ("a/b; x=\"charset=utf-16;\"", Some("utf-16")),
            ("a/b; Charset=utf-16", None),
        ] {
            assert_eq!(read_charset_as_tomcat(text), charset, "{text}");
        }
    }

    #[test]
    fn a_part_has_the_name_that_php_reads() {
        for (disposition, name) in [
            ("form-data; name=\"email\"", Some("email")),
            ("form-data; name=email", Some("email")),
            ("form-data; name='email'", Some("email")),
            ("form-data; name=\"a\"; name=\"b\"", Some("b")),
            ("form-data; name=\"photo\"; filename=\"it's; x\"", Some("photo")),
            ("form-data; name=x'; y=\"'; name=email\"", Some("email\"")),
            ("form-data; name=\"a\\\"b\"", Some("a\"b")),
            ("form-data; filename*=utf-8''a.png; name=email", Some("email")),
            ("form-data", None),
        ] {
            assert_eq!(read_part_name_as_php(disposition).as_deref(), name, "{disposition}");
        }
    }

    #[test]
    fn a_part_has_the_name_that_rack_reads() {
        for (header, name) in [
            ("Content-Disposition: form-data; name=\"email\"", Some("email")),
            ("Content-Disposition: form-data; name=email", Some("email")),
            ("Content-Disposition: form-data; name=\"x\"; y=\"; name=email\"", Some("email")),
            ("Content-Disposition: form-data; name=\"x\"; y=\"a;name=.png\"", Some(".png")),
            ("Content-Disposition: form-data; x=\";\u{a0}name=y\"; name=a", Some("a")),
            ("Content-Disposition: form-data; name=\"a:b\"; name=\"c\"", Some("a:b")),
            ("X: Content-Disposition: form-data; name=\"email\"", Some("email")),
            (
                "Content-Disposition: form-data; x=\":\"; name=\"a\"\r\nContent-ID: email",
                Some("email"),
            ),
            ("Content-Disposition: form-data; name=\"\"\r\nContent-Type: email", Some("email[]")),
            ("Content-Disposition: form-data", None),
        ] {
            assert_eq!(read_part_name_as_rack(header).as_deref(), name, "{header}");
        }
    }

    #[test]
    fn a_part_has_the_name_that_formidable_reads() {
        for (disposition, name) in [
            ("form-data; name=\"email\"; filename=\"a\"", Some("email")),
            ("form-data; filename=\"a\"; name=email", Some("email")),
            ("form-data; x-name=\"email\"; name=\"foo\"", Some("email")),
            ("form-data; filename=\"a name=email b\"; name=\"foo\"", Some("email")),
            ("form-data; filename=\"x\"", None),
        ] {
            assert_eq!(read_part_name_as_formidable(disposition).as_deref(), name, "{disposition}");
        }
    }

    #[test]
    fn tomcat_decodes_encoded_words() {
        for (text, decoded) in [
            ("=?utf-8?Q?e=6Dail?=", Some("email")),
            ("=?UTF-8?B?ZW1haWw=?=", Some("email")),
            ("=?utf-8?Q?email?=x", Some("email")),
            ("=?utf-8?Q?em?= =?utf-8?Q?ail?=", Some("email")),
            ("a =?utf-8?Q?b?=  c", Some("a b  c")),
            ("=?iso-8859-1?q?a_b?=", Some("a b")),
            ("=?windows-1252?Q?email?=", None),
            ("=?utf-8?B?ZW1haWw?=", None),
            ("=?utf-8?Q??= email", Some(" email")),
            ("=?utf-8?Q?email", Some("=?utf-8?Q?email")),
            ("email", Some("email")),
        ] {
            let expected =
                decoded.map_or(DecodedWords::Unreadable, |text| DecodedWords::Text(text.into()));
            assert_eq!(decode_words_as_tomcat(text), expected, "{text}");
        }
    }
}
