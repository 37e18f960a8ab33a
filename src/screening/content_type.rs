//! `Content-Type` (RFC 9110 section 8.3).

/// The parts of a content type that decide how a body is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentType {
    /// Type and subtype, in lower case.
    pub media_type: String,
    pub charset: Option<String>,
    pub boundary: Option<String>,
}

impl ContentType {
    /// Returns true if texts in the body are UTF-8, which is also the default.
    pub fn is_utf8(&self) -> bool {
        const NAMES: [&str; 4] = ["utf-8", "utf8", "us-ascii", "ascii"];
        let charset = self.charset.as_deref();
        charset.is_none_or(|charset| NAMES.iter().any(|name| charset.eq_ignore_ascii_case(name)))
    }

    /// Parses a value. `None` if it breaks the grammar or repeats a parameter: servers may then read
    /// it in different ways.
    pub fn parse(value: &[u8]) -> Option<ContentType> {
        let text = std::str::from_utf8(value).ok()?;
        let (media_type, mut rest) = text.split_at(text.find(';').unwrap_or(text.len()));
        let media_type = media_type.trim_matches([' ', '\t']).to_ascii_lowercase();
        let (kind, subtype) = media_type.split_once('/')?;
        if !is_token(kind) || !is_token(subtype) {
            return None;
        }
        let mut parsed = ContentType { media_type, charset: None, boundary: None };
        while let Some(after) = rest.strip_prefix(';') {
            let after = after.trim_start_matches([' ', '\t']);
            if after.is_empty() || after.starts_with(';') {
                rest = after;
                continue;
            }
            let (name, value) = after.split_once('=')?;
            let (value, after) = parse_parameter_value(value)?;
            if is_read_in_other_ways(&value) {
                return None;
            }
            let slot = match name.to_ascii_lowercase().as_str() {
                "charset" => Some(&mut parsed.charset),
                "boundary" => Some(&mut parsed.boundary),
                // RFC 2231 has other spellings, which some servers read. Others search for the word.
                name if !is_token(name) || name.contains('*') || name.contains("boundary") => {
                    return None;
                }
                _ => None,
            };
            if slot.is_some_and(|slot| slot.replace(value).is_some()) {
                return None;
            }
            rest = after.trim_start_matches([' ', '\t']);
        }
        rest.is_empty().then_some(parsed)
    }
}

/// Returns true for a parameter's value that some servers would cut, or would search for a parameter.
fn is_read_in_other_ways(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    lower.contains([';', ',']) || ["boundary", "charset"].iter().any(|name| lower.contains(name))
}

/// Returns a parameter's value, and the text after it.
fn parse_parameter_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return is_token(value).then(|| (value.to_owned(), rest));
    };
    // Servers disagree about backslashes in quotes, so a value with one is not accepted.
    let (value, rest) = quoted.split_once('"')?;
    let is_plain = |c: char| c != '\\' && !c.is_control();
    value.chars().all(is_plain).then(|| (value.to_owned(), rest))
}

/// Returns true for a token (RFC 9110 section 5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    let is_token_char = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_token_char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_may_be_tokens_or_quoted() {
        let parse = |text: &str| ContentType::parse(text.as_bytes());
        let plain = |media_type: &str| ContentType {
            media_type: media_type.to_owned(),
            charset: None,
            boundary: None,
        };
        for text in
            ["application/json", "Application/JSON ; q=1", "application/json;", " application/json"]
        {
            assert_eq!(parse(text), Some(plain("application/json")), "{text}");
        }
        for text in
            ["multipart/form-data; boundary=a-b", "multipart/form-data;BOUNDARY=\"a-b\" ; x=y"]
        {
            let expected =
                ContentType { boundary: Some("a-b".to_owned()), ..plain("multipart/form-data") };
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn ambiguous_values_are_refused() {
        for text in [
            "",
            "json",
            "application/",
            "application/json, text/plain",
            "a/b; charset=utf-8; charset=utf-16",
            "a/b; boundary",
            "a/b; boundary=\"x",
            "a/b; boundary=\"x\\\"y\"",
            "a/b; boundary*0=x",
            "a/b; boundary= x",
            "a/b; boundary=x y",
            "a/b; =x",
            "a/b; x=\"boundary=evil\"; boundary=good",
            "a/b; boundary=good; x=\"Boundary=evil\"",
            "a/b; boundary=\"good,evil\"",
            "a/b; boundary=\"good;evil\"",
            "a/b; x=\"charset=utf-16\"",
        ] {
            assert_eq!(ContentType::parse(text.as_bytes()), None, "{text}");
        }
    }
}
