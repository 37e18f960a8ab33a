//! A fault of the config: where it stands, what was expected, what was found, what to write.

use std::fmt;
use std::ops::Range;

use super::raw_value::{redact_urls_and_long_words, span_in_list};
use crate::support::excerpt::Excerpt;
use crate::support::line_index::LineIndex;

/// A fault of the config, or of a file that the config names.
///
/// `Display` writes the fault in one line, for logs. [`ConfigFault::to_text`] adds the line of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    message: String,
    hint: Option<String>,
    excerpt: Option<Excerpt>,
    /// `None` if nobody asks for the kind of the fault.
    kind: Option<Box<FaultKind>>,
}

/// What some faults are about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FaultKind {
    /// This setting or section is missing.
    MissingKey(String),
    /// The file of a secret, which this setting names, can't be read or has no such secret.
    FaultySecret(String),
    /// The list of the setting `key` has this faulty text.
    ListText { key: String, text: String },
}

/// The text of a config file, and the name of the file in faults.
#[derive(Clone, Debug, Default)]
pub struct ConfigText {
    pub name: String,
    pub text: String,
}

/// Where a setting or a section stands in the text of its file, in bytes.
#[derive(Clone, Debug)]
pub struct SettingSpan {
    pub key: Range<usize>,
    /// Empty for a section.
    pub value: Range<usize>,
}

impl ConfigFault {
    /// Creates a fault that shows no line of a file.
    pub fn new(message: impl Into<String>) -> ConfigFault {
        ConfigFault { message: message.into(), hint: None, excerpt: None, kind: None }
    }

    /// Adds the problem to a fault that has only the place and the name of the setting.
    #[must_use]
    pub(super) fn with_problem(mut self, problem: &str) -> ConfigFault {
        self.message = format!("{}: {problem}", self.message);
        self
    }

    /// The number of the line with the fault; `None` if the fault shows no line.
    pub(super) fn line_number(&self) -> Option<usize> {
        self.excerpt.as_ref().map(Excerpt::line_number)
    }

    /// Notes which setting or section is missing.
    #[must_use]
    pub(super) fn with_missing_key(mut self, key: &str) -> ConfigFault {
        self.kind = Some(Box::new(FaultKind::MissingKey(key.to_owned())));
        self
    }

    /// Returns true if the fault is that this setting or section is missing.
    pub(super) fn is_about_missing(&self, key: &str) -> bool {
        self.missing_key() == Some(key)
    }

    /// Returns the setting or section that is missing, if the fault is that.
    pub(super) fn missing_key(&self) -> Option<&str> {
        match self.kind.as_deref() {
            Some(FaultKind::MissingKey(key)) => Some(key),
            _ => None,
        }
    }

    /// Notes that the file of a secret, which this setting names, can't be read or has no such
    /// secret.
    #[must_use]
    pub(super) fn with_faulty_secret(mut self, file_key: &str) -> ConfigFault {
        self.kind = Some(Box::new(FaultKind::FaultySecret(file_key.to_owned())));
        self
    }

    /// Returns the setting that names the file of a secret, if the fault is that the file can't be
    /// read or has no such secret.
    pub(super) fn faulty_secret(&self) -> Option<&str> {
        match self.kind.as_deref() {
            Some(FaultKind::FaultySecret(file_key)) => Some(file_key),
            _ => None,
        }
    }

    /// Notes that the fault is in this text of a setting's list.
    #[must_use]
    pub(super) fn with_list_text(mut self, key: &str, text: &str) -> ConfigFault {
        let (key, text) = (key.to_owned(), text.to_owned());
        self.kind = Some(Box::new(FaultKind::ListText { key, text }));
        self
    }

    /// Replaces the hint by what `amend` makes of it, if the fault is in a text of this setting's
    /// list. Returns true if it is.
    pub(super) fn amend_hint_of_list(
        &mut self,
        key: &str,
        amend: impl Fn(&[String], Option<String>) -> Option<String>,
    ) -> bool {
        match self.kind.as_deref() {
            Some(FaultKind::ListText { key: of, text }) if of == key => {
                self.hint = amend(std::slice::from_ref(text), self.hint.take());
                true
            }
            _ => false,
        }
    }

    /// Returns the hint.
    pub(super) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Sets the hint: what to write instead.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<String>) -> ConfigFault {
        self.hint = hint;
        self
    }

    /// Sets the hint, unless the fault has one.
    #[must_use]
    pub(super) fn or_hint(mut self, hint: Option<String>) -> ConfigFault {
        self.hint = self.hint.or(hint);
        self
    }

    /// Returns what was expected and found, and the hint. `None` if the message does not begin with
    /// `location` or has no `expected`.
    pub(super) fn expected_and_hint(&self, location: &str) -> Option<(&str, Option<&str>)> {
        let at = self.message.strip_prefix(location)?.find("expected ")?;
        Some((&self.message[location.len() + at..], self.hint.as_deref()))
    }

    /// The text for a terminal: the fault, and its excerpt if it has one.
    pub fn to_text(&self) -> String {
        match &self.excerpt {
            Some(excerpt) => {
                format!("{}\n{}", self.message, excerpt.render(self.hint.as_deref()))
            }
            None => self.to_string(),
        }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl From<String> for ConfigFault {
    fn from(message: String) -> ConfigFault {
        ConfigFault::new(message)
    }
}

impl ConfigText {
    /// The file and the line of a byte.
    pub fn file_and_line(&self, offset: usize) -> String {
        format!("{}:{}", self.name, self.line_number(offset))
    }

    /// Creates a fault that marks the name of a setting or a section.
    pub fn fault_at_key(&self, span: &SettingSpan, problem: &str) -> ConfigFault {
        let behind = match span.value.is_empty() {
            // The end of the section's header.
            true => {
                let line = self.text.get(span.key.end..).unwrap_or_default();
                &line[..line.find(|c| c != ']' && !is_name_char(c)).unwrap_or(line.len())]
            }
            false => " = …",
        };
        self.fault_at(span.key.clone(), None, behind, problem)
    }

    /// Creates a fault that marks the value of a setting. `shown_value` is the value without what
    /// may be secret; `None` if no part of the value is, so that the value is shown as it is
    /// written.
    pub fn fault_at_value(
        &self,
        span: &SettingSpan,
        shown_value: Option<&str>,
        problem: &str,
    ) -> ConfigFault {
        self.fault_at(span.value.clone(), shown_value, "", problem)
    }

    /// Creates a fault that marks the text at this index of a list. `shown` are the texts of the
    /// list without what may be secret.
    pub fn fault_at_item(
        &self,
        list: &SettingSpan,
        shown: &[String],
        index: usize,
        problem: &str,
    ) -> ConfigFault {
        let shown_item = shown.get(index).map_or("…", String::as_str);
        let written = self.text.get(list.value.clone()).unwrap_or_default();
        let item = span_in_list(written, index)
            .map(|span| list.value.start + span.start..list.value.start + span.end);
        if let Some(item) = item.clone()
            && let Some((line, marked)) = self.line_of_plain_list(&item, list.value.end)
        {
            return self.fault_with_excerpt(item.start, line, marked, problem);
        }
        let place = item.map_or(list.value.start, |item| item.start);
        let (line, first_line) = (self.line_of(place), self.line_of(list.value.start));
        let (before, behind) = match line == first_line {
            true => {
                let before = self.text.get(first_line.start..list.value.start).unwrap_or_default();
                let is_plain = before.split_once('=').is_some_and(|(_, it)| it.trim().is_empty());
                let before = if is_plain { before.replace('\t', " ") } else { "… ".to_owned() };
                let others = |texts: &[String]| texts.join(", ");
                let gap = if index == 0 { "" } else { ", " };
                let rest = shown.get(index + 1..).unwrap_or_default();
                let rest_gap = if rest.is_empty() { "" } else { ", " };
                (
                    format!("{before}[{}{gap}", others(&shown[..index])),
                    format!("{rest_gap}{}]", others(rest)),
                )
            }
            false => ("    ".to_owned(), ",".to_owned()),
        };
        let marked = before.chars().count()..before.chars().count() + shown_item.chars().count();
        self.fault_with_excerpt(place, format!("{before}{shown_item}{behind}"), marked, problem)
    }

    /// The line of a part of a list, and the characters of this part. `None` if the line may have a
    /// secret. `list_end` is the byte behind the list.
    fn line_of_plain_list(
        &self,
        part: &Range<usize>,
        list_end: usize,
    ) -> Option<(String, Range<usize>)> {
        let line = self.line_of(part.start);
        let text = self.text.get(line.start..list_end.min(line.end))?;
        // Behind a # there may be a comment.
        let is_before_text = |c: char| is_name_char(c) || " \t=[".contains(c);
        let start = text.split(['"', '\'']).next()?;
        let is_plain = start.chars().all(is_before_text)
            && !text.contains(['#', '\\'])
            && redact_urls_and_long_words(text) == text;
        let before = self.text.get(line.start..part.start)?.chars().count();
        let marked = self.text.get(part.start..part.end.min(line.end))?.chars().count();
        is_plain.then(|| (text.trim_end().replace('\t', " "), before..before + marked))
    }

    /// Creates a fault that marks a part of a text in a list, which ends at the byte `list_end`.
    /// The text must not be a secret.
    pub fn fault_in_text(
        &self,
        place: Range<usize>,
        list_end: usize,
        text: &str,
        problem: &str,
    ) -> ConfigFault {
        if let Some((shown, marked)) = self.line_of_plain_list(&place, list_end) {
            return self.fault_with_excerpt(place.start, shown, marked, problem);
        }
        let line = self.line_of(place.start);
        let before = self.text.get(line.start..place.start).unwrap_or_default();
        let marked = self.text.get(place.start..place.end.min(line.end)).unwrap_or_default();
        // The excerpt shows this text of the list alone. The part of the text that stands before
        // the fault in the file says how far the mark is indented.
        let starts = (0..=text.len()).rev().filter_map(|end| text.get(..end));
        let start = starts.into_iter().find(|start| before.ends_with(start)).unwrap_or_default();
        let indent = start.chars().count();
        let place_of_mark = indent..indent + marked.chars().count();
        self.fault_with_excerpt(place.start, text.to_owned(), place_of_mark, problem)
    }

    /// Creates a fault at the byte `offset`. `shown` is its line without what may be secret. The
    /// mark stands below the characters `marked`.
    pub(super) fn fault_with_excerpt(
        &self,
        offset: usize,
        shown: String,
        marked: Range<usize>,
        problem: &str,
    ) -> ConfigFault {
        ConfigFault {
            excerpt: Some(Excerpt::new(self.line_number(offset), shown, marked)),
            ..ConfigFault::new(format!("{}: {problem}", self.place(offset)))
        }
    }

    fn fault_at(
        &self,
        span: Range<usize>,
        shown: Option<&str>,
        behind: &str,
        problem: &str,
    ) -> ConfigFault {
        let line = self.line_of(span.start);
        let before = self.text.get(line.start..span.start).unwrap_or_default();
        let marked = self.text.get(span.start..span.end.min(line.end)).unwrap_or_default();
        let shown = shown.unwrap_or(marked);
        let is_plain = match before.split_once('=') {
            Some((_, values)) => values.trim().is_empty(),
            None => before.trim_start_matches(['[', ' ', '\t']).chars().all(is_name_char),
        };
        // The other values of an inline table or a list may be secrets.
        let before = if is_plain { before.replace('\t', " ") } else { "… ".to_owned() };
        let indent = before.chars().count();
        let marked = indent..indent + shown.chars().count();
        self.fault_with_excerpt(span.start, format!("{before}{shown}{behind}"), marked, problem)
    }

    /// The file, the line and the column of a byte.
    fn place(&self, offset: usize) -> String {
        LineIndex::new(&self.text).format_place(&self.name, offset)
    }

    fn line_number(&self, offset: usize) -> usize {
        LineIndex::new(&self.text).line_and_text_before(offset).0
    }

    /// The bytes of the line with this byte, without its end.
    pub(super) fn line_of(&self, offset: usize) -> Range<usize> {
        let (before, behind) = self.text.split_at_checked(offset).unwrap_or((&self.text, ""));
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = behind.find(['\r', '\n']).map_or(self.text.len(), |at| offset + at);
        start..end
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}
