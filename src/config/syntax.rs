//! Faults of the syntax of TOML: what was meant, as far as one line tells.
//!
//! Shows only headers of sections and names of settings: any other text may be a part of a secret.

use std::ops::Range;

use super::fault::{ConfigFault, ConfigText};
use super::unknown_keys::{header_of_known, known_keys};

/// What the parser says of a name that a section has twice, and of a section.
const DUPLICATE: &str = "duplicate key";
/// Words that people write for a boolean, in small letters.
const FLAGS: [(&str, &str); 6] = [
    ("true", "true"),
    ("yes", "true"),
    ("on", "true"),
    ("false", "false"),
    ("no", "false"),
    ("off", "false"),
];

impl ConfigText {
    /// A fault of the syntax of TOML at `span`, of which the parser says `message`.
    pub fn syntax_fault(&self, span: Range<usize>, message: &str) -> ConfigFault {
        let line = self.line_of(span.start);
        let text = self.text.get(line.clone()).unwrap_or_default();
        let is_of_header = |c: char| c.is_ascii_alphanumeric() || " ._-[]".contains(c);
        if text.starts_with('[') && text.chars().all(is_of_header) {
            return self.header_fault(&line, span, message);
        }
        let at_equals = text.find('=').unwrap_or(text.len());
        let separator = match text[..at_equals].find(':') {
            Some(colon) => colon,
            None => at_equals,
        };
        let (name, behind) = text.split_at(separator);
        let name = name.trim();
        let known = known_keys();
        let is_known = |name: &str| known.iter().any(|key| key.split('.').any(|it| it == name));
        let name = if is_known(name) { name } else { "" };
        let found = describe(name, behind, message, self.first_line_of(name, line.start));
        let shown = match name {
            "" => "…".to_owned(),
            _ if behind.starts_with(':') => format!("{name}: …"),
            _ => format!("{name} = …"),
        };
        let is_in_value = !name.is_empty() && span.start > line.start + separator;
        let (indent, width) = match is_in_value {
            true => (shown.chars().count() - 1, 1),
            false => (0, name.chars().count().max(1)),
        };
        let problem = format!("expected TOML, but found: {}", found.unwrap_or(message.to_owned()));
        let hint = hint_for_line(text, name, behind);
        self.fault_with_excerpt(span.start, shown, indent..indent + width, &problem).with_hint(hint)
    }

    /// A fault of the header of a section. Its brackets may be wrong, or those of an earlier one.
    fn header_fault(&self, line: &Range<usize>, span: Range<usize>, message: &str) -> ConfigFault {
        let text = self.text.get(line.clone()).unwrap_or_default();
        let section = text.trim_matches(['[', ']', ' ']);
        let written = text.trim_end();
        let right = header_of_known(section);
        let mut earlier = self.text[..line.start].lines().enumerate().filter(|(_, other)| {
            other.starts_with('[') && other.trim().trim_matches(['[', ']', ' ']) == section
        });
        let first = earlier.next();
        let is_double = message.starts_with(DUPLICATE);
        let hint = match (&right, first) {
            (Some(right), _) if section == "admin.token" && is_double && written == right => {
                Some("write either token below [admin], or [[admin.token]] for each token".into())
            }
            (Some(right), None) if right != written => Some(format!("write {right}")),
            (Some(right), Some((at, other))) if other.trim() != right || written != right => {
                Some(format!("write {right} here and in line {}", at + 1))
            }
            (_, Some((at, _))) if is_double => {
                Some(format!("write its settings below line {}, and remove this line", at + 1))
            }
            _ => None,
        };
        let problem = match first {
            Some((at, _)) if is_double => {
                format!("expected [{section}] once, but found it again, first in line {}", at + 1)
            }
            _ => format!("expected TOML, but found: {message}"),
        };
        let start = span.start - line.start;
        let end = span.end.min(line.end) - line.start;
        let chars = |bytes: usize| text.get(..bytes).unwrap_or_default().chars().count();
        let place = chars(start)..chars(end).max(chars(start) + 1);
        self.fault_with_excerpt(span.start, text.to_owned(), place, &problem).with_hint(hint)
    }

    /// Returns the number of the line above that sets this name in the same section.
    fn first_line_of(&self, name: &str, line_start: usize) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        let before = self.text.get(..line_start)?;
        let count = before.lines().count();
        let in_section = before.lines().rev().take_while(|line| !line.starts_with('['));
        let named = in_section.enumerate().filter(|(_, line)| {
            line.split_once('=').is_some_and(|(other, _)| other.trim() == name)
        });
        named.last().map(|(back, _)| count - back)
    }
}

/// Says what was found, if the parser says it in words that mislead.
fn describe(name: &str, behind: &str, message: &str, first: Option<usize>) -> Option<String> {
    let value = behind.get(1..).unwrap_or_default().trim();
    match first {
        Some(first) if message.starts_with(DUPLICATE) => {
            return Some(format!("{name} again, first in line {first}"));
        }
        _ => {}
    }
    if name.is_empty() {
        return None;
    }
    match value {
        "" if behind.starts_with('=') => Some(format!("{name} without a value")),
        value if is_unquoted(value) && !value.starts_with(['=', '>']) => {
            Some("a text without quotes".to_owned())
        }
        _ => None,
    }
}

/// Returns true if a value begins like none of TOML but a word or a number.
fn is_unquoted(value: &str) -> bool {
    !value.is_empty() && !value.starts_with(['"', '\'', '[', '{', '#'])
}

/// Returns what to write in place of a line.
fn hint_for_line(text: &str, name: &str, behind: &str) -> Option<String> {
    let line = text.trim_start();
    if ["//", "/*", ";", "--", "<!--"].iter().any(|comment| line.starts_with(comment)) {
        return Some("write # before a comment".to_owned());
    }
    if line.starts_with('{') {
        return Some("write sections and settings, such as [listen] and http = \"…\"".to_owned());
    }
    if name.is_empty() {
        return None;
    }
    let value = behind.get(1..).unwrap_or_default().trim();
    if behind.starts_with(':') {
        return Some(match (value, header_of_known(name)) {
            ("", Some(header)) => format!("write {header}"),
            _ => format!("write {name} = …"),
        });
    }
    if let Some(sign) = ["=", ">"].iter().find(|sign| value.starts_with(**sign)) {
        return Some(format!("write {name} = …, without the {sign} behind it"));
    }
    let last = value.chars().next_back().filter(|last| matches!(last, ';' | ','));
    if let Some(last) = last.filter(|_| !value.starts_with(['[', '{'])) {
        return Some(format!("write no {last} at the end of the line"));
    }
    let flag = FLAGS.iter().find(|(word, _)| value.eq_ignore_ascii_case(word));
    match (flag, value.chars().next()) {
        (Some((_, flag)), _) => Some(format!("write {flag}")),
        (None, Some('"')) if value.contains('\\') => {
            Some("write \\\\ for each \\, or the text between ' and '".to_owned())
        }
        (None, Some(quote @ ('"' | '\''))) if !value[1..].contains(quote) => {
            Some(format!("end the text with {quote}"))
        }
        (None, _) if is_unquoted(value) => Some("write a text between quotes".to_owned()),
        _ => None,
    }
}
