//! A fault of the config: where it stands, what was expected, what was found, what to write.

use std::fmt;
use std::ops::Range;

/// A fault of the config, or of a file that it names.
///
/// `Display` writes it in one line, for logs. [`ConfigFault::to_text`] adds the line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    message: String,
    hint: Option<String>,
    excerpt: Option<Excerpt>,
    /// The key that is missing, if that is the fault.
    missing_key: Option<String>,
}

/// The line of the file with the fault, without what may be secret.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    line_number: usize,
    line: String,
    /// The characters of `line` before the fault.
    indent: usize,
    /// The characters of the fault.
    width: usize,
}

/// The text of a config file, with the name that faults use for it.
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
    /// A fault without a place in a text: `message` is the whole of it.
    pub fn new(message: impl Into<String>) -> ConfigFault {
        ConfigFault { message: message.into(), hint: None, excerpt: None, missing_key: None }
    }

    /// Notes that the fault is that this setting, or a section of this name, is missing.
    #[must_use]
    pub(super) fn of_missing(mut self, key: &str) -> ConfigFault {
        self.missing_key = Some(key.to_owned());
        self
    }

    /// Returns true if the fault is that this setting or section is missing.
    pub(super) fn is_of_missing(&self, key: &str) -> bool {
        self.missing_key.as_deref() == Some(key)
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<String>) -> ConfigFault {
        self.hint = hint;
        self
    }

    /// Adds words to what to write instead.
    #[must_use]
    pub(super) fn with_more_hint(mut self, words: &str) -> ConfigFault {
        self.hint = self.hint.map(|hint| format!("{hint}, {words}"));
        self
    }

    /// The line of the config file, and below it a mark and what to write instead. `None` if the
    /// fault stands in no line of a config file.
    fn excerpt(&self) -> Option<String> {
        let Excerpt { line_number, line, indent, width } = self.excerpt.as_ref()?;
        let number = line_number.to_string();
        let margin = " ".repeat(number.len());
        let (indent, mark) = (" ".repeat(*indent), "^".repeat((*width).max(1)));
        let hint = self.hint.as_deref().map_or(String::new(), |hint| format!(" {hint}"));
        Some(format!("{margin} |\n{number} | {line}\n{margin} | {indent}{mark}{hint}"))
    }

    /// The text for a terminal: the fault, and its excerpt if it has one.
    pub fn to_text(&self) -> String {
        match self.excerpt() {
            Some(excerpt) => format!("{}\n{excerpt}", self.message),
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

    /// A fault of the name of a setting or a section.
    pub fn fault_at_key(&self, span: &SettingSpan, problem: &str) -> ConfigFault {
        let behind = match span.value.is_empty() {
            // The end of the section's header.
            true => {
                let line = self.text.get(span.key.end..).unwrap_or_default();
                &line[..line.find(|c| c != ']').unwrap_or(line.len())]
            }
            false => " = …",
        };
        self.fault_at(span.key.clone(), None, behind, problem)
    }

    /// A fault of the value of a setting. `shown_value` is the value as a fault may show it.
    pub fn fault_at_value(
        &self,
        span: &SettingSpan,
        shown_value: &str,
        problem: &str,
    ) -> ConfigFault {
        self.fault_at(span.value.clone(), Some(shown_value), "", problem)
    }

    /// A fault in a text that is no secret. Shows the text where it stands in its line.
    pub fn fault_in_text(&self, place: Range<usize>, text: &str, problem: &str) -> ConfigFault {
        let line = self.line_of(place.start);
        let before = self.text.get(line.start..place.start).unwrap_or_default();
        let marked = self.text.get(place.start..place.end.min(line.end)).unwrap_or_default();
        // The other texts of the list are left out, so that the mark stands below the fault.
        let quote = before.rfind(['"', '\'']).map_or(before.len(), |at| at + 1);
        let indent = before[quote..].chars().count();
        Excerpt {
            line_number: self.line_number(place.start),
            line: text.to_owned(),
            indent,
            width: marked.chars().count(),
        }
        .into_fault(format!("{}: {problem}", self.place(place.start)))
    }

    /// A fault of the syntax of TOML. Shows only the header of a section, or the name of a setting
    /// for which `is_known` returns true: any other text may be a part of a secret.
    pub fn syntax_fault(
        &self,
        span: Range<usize>,
        problem: &str,
        is_known: impl Fn(&str) -> bool,
    ) -> ConfigFault {
        let line = self.line_of(span.start);
        let text = self.text.get(line.clone()).unwrap_or_default();
        let is_of_header = |c: char| c.is_ascii_alphanumeric() || " ._-[]".contains(c);
        if text.starts_with('[') && text.chars().all(is_of_header) {
            let is_list_of_tokens = text.starts_with("[[admin.token]]");
            let hint = is_list_of_tokens.then(|| {
                "write either token below [admin], or [[admin.token]] for each token".to_owned()
            });
            return self.fault_at(span, None, "", problem).with_hint(hint);
        }
        let name = text.split_once('=').map(|(name, _)| name.trim());
        let name = name.filter(|name| is_known(name)).unwrap_or_default();
        let equals = text.find('=').unwrap_or_default();
        let is_in_value = !name.is_empty() && span.start > line.start + equals;
        let value = text.get(equals + 1..).unwrap_or_default().trim();
        let is_unquoted = !value.is_empty() && !value.starts_with(['"', '\'', '[', '{']);
        let hint = (is_in_value && is_unquoted).then(|| "write a text between quotes".to_owned());
        let shown = if name.is_empty() { "…".to_owned() } else { format!("{name} = …") };
        let (indent, width) = match is_in_value {
            true => (name.chars().count() + 3, 1),
            false => (0, name.chars().count().max(1)),
        };
        let excerpt =
            Excerpt { line_number: self.line_number(span.start), line: shown, indent, width };
        excerpt.into_fault(format!("{}: {problem}", self.place(span.start))).with_hint(hint)
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
        Excerpt {
            line_number: self.line_number(span.start),
            line: format!("{before}{shown}{behind}"),
            indent: before.chars().count(),
            width: shown.chars().count(),
        }
        .into_fault(format!("{}: {problem}", self.place(span.start)))
    }

    /// The file, the line and the column of a byte. Both count from 1; columns are characters.
    fn place(&self, offset: usize) -> String {
        let before = self.text.get(self.line_of(offset).start..offset).unwrap_or_default();
        format!("{}:{}", self.file_and_line(offset), before.chars().count() + 1)
    }

    fn line_number(&self, offset: usize) -> usize {
        self.text.get(..offset).unwrap_or_default().matches('\n').count() + 1
    }

    /// The bytes of the line with this byte, without its end.
    fn line_of(&self, offset: usize) -> Range<usize> {
        let (before, behind) = self.text.split_at_checked(offset).unwrap_or((&self.text, ""));
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = behind.find(['\r', '\n']).map_or(self.text.len(), |at| offset + at);
        start..end
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

impl Excerpt {
    fn into_fault(self, message: String) -> ConfigFault {
        ConfigFault { message, hint: None, excerpt: Some(self), missing_key: None }
    }
}
