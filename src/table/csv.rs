//! Parses and writes one line of comma-separated values (RFC 4180). Quotes may not contain line
//! breaks, so that every row has one line number and every line can be a comment.
//!
//! A CSV crate would skip the comments and lose the line numbers.

use std::borrow::Cow;

use super::fault::quote_excerpt;

/// Parses the fields of a line, without the blanks around them. The error has two texts: what was
/// expected, and what was found.
pub(super) fn parse_fields(line: &str) -> Result<Vec<Cow<'_, str>>, (&'static str, String)> {
    let mut fields = Vec::with_capacity(8);
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        let after = match rest.strip_prefix('"') {
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, after) = rest.split_at(end);
                if field.contains('"') {
                    return Err(("quotes around a whole field only", quote_excerpt(field)));
                }
                fields.push(Cow::Borrowed(field.trim_end()));
                after
            }
            Some(quoted_field) => {
                let (field, after) = split_quoted_field(quoted_field)
                    .ok_or_else(|| ("a closing quote on the same line", quote_excerpt(rest)))?;
                fields.push(Cow::Owned(field));
                after.trim_start()
            }
        };
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(fields),
            None => return Err(("a comma behind a quoted field", quote_excerpt(after))),
        }
    }
}

/// Whether all fields of a line are empty. A spreadsheet writes such lines for cleared rows.
pub(super) fn is_empty_row(line: &str) -> bool {
    line.split(',').all(|field| matches!(field.trim(), "" | "\"\""))
}

/// Writes a line with these fields, with its line feed. No field may contain a line break.
pub(super) fn format_line(fields: &[&str]) -> String {
    let quote = |field: &&str| {
        let needs_quotes =
            field.contains([',', '"']) || field.starts_with('#') || field.trim() != *field;
        if needs_quotes {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            (*field).to_owned()
        }
    };
    fields.iter().map(quote).collect::<Vec<_>>().join(",") + "\n"
}

/// Parses a quoted field. `text` begins behind the opening quote; `""` is an escaped quote. Returns
/// the field and the text behind the closing quote; `None` without a closing quote.
fn split_quoted_field(text: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"')?;
        field.push_str(before);
        match after.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => return Some((field, after)),
        }
    }
}

#[cfg(test)]
mod tests;
