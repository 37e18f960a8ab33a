//! A value with parameters (RFC 9110 section 5.6.6), as in `Content-Type` and
//! `Content-Disposition`.

use crate::support::byte_sets::is_token_byte;

/// A value with parameters, such as `form-data; name="x"`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ValueWithParameters<'t> {
    /// The text before the parameters, such as `form-data`.
    pub value: &'t str,
    /// The parameters that riskgate could parse, in their order. Some have a text behind them that
    /// breaks the grammar.
    pub parameters: Vec<Parameter<'t>>,
    /// Whether a parameter breaks the grammar. The parser goes on behind the next `;`.
    pub is_broken: bool,
}

/// A parameter, such as `boundary=x`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameter<'t> {
    /// The name, in lower case.
    pub name: String,
    /// The value as the client has written it, but without quotes around the value.
    pub raw_value: &'t str,
    /// The value without the backslashes that escape a character of a quoted value.
    pub value: String,
    /// Whether the value was written in quotes.
    pub is_quoted: bool,
}

const BLANKS: [char; 2] = [' ', '\t'];

/// Parses a value with parameters. An unquoted value may have all characters but blanks, quotes,
/// `;`, `,` and control characters, because clients write values that are no tokens.
pub(super) fn parse_value_with_parameters(text: &str) -> ValueWithParameters<'_> {
    let (value, mut rest) = text.split_once(';').unwrap_or((text, ""));
    let mut parsed = ValueWithParameters {
        value: value.trim_matches(BLANKS),
        parameters: Vec::new(),
        is_broken: false,
    };
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        if rest.is_empty() {
            return parsed;
        }
        let (parameter, after) = match parse_parameter(rest) {
            Some((parameter, after)) => (Some(parameter), after.trim_start_matches(BLANKS)),
            None => (None, rest),
        };
        let is_whole = parameter.is_some() && (after.is_empty() || after.starts_with(';'));
        parsed.is_broken |= !is_whole;
        parsed.parameters.extend(parameter);
        rest = after.split_once(';').map_or("", |(_, rest)| rest);
    }
}

/// Returns a parameter, and the text behind it.
fn parse_parameter(text: &str) -> Option<(Parameter<'_>, &str)> {
    let (name, rest) = text.split_at(text.bytes().position(|byte| !is_token_byte(byte))?);
    let value = rest.trim_start_matches(BLANKS).strip_prefix('=')?.trim_start_matches(BLANKS);
    if name.is_empty() {
        return None;
    }
    let quoted = value.strip_prefix('"');
    let (raw_value, value, after) = match quoted {
        Some(quoted) => parse_quoted_value(quoted)?,
        None => parse_unquoted_value(value)?,
    };
    let (name, is_quoted) = (name.to_ascii_lowercase(), quoted.is_some());
    Some((Parameter { name, raw_value, value, is_quoted }, after))
}

/// Returns the raw value, the value, and the text behind the value.
fn parse_unquoted_value(text: &str) -> Option<(&str, String, &str)> {
    let end = text.find([';', ',', '"', ' ', '\t']).unwrap_or(text.len());
    let (value, rest) = text.split_at(end);
    let is_valid = !value.is_empty() && !value.contains(char::is_control);
    is_valid.then(|| (value, value.to_owned(), rest))
}

/// Returns the raw value, the value without backslashes, and the text behind the closing quote.
/// `text` begins behind the opening quote.
fn parse_quoted_value(text: &str) -> Option<(&str, String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((&text[..at], value, &text[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c if c.is_control() && c != '\t' => return None,
            c => value.push(c),
        }
    }
    None
}

/// Returns true for a token (RFC 9110 section 5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

#[cfg(test)]
mod tests;
