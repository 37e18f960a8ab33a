//! Faults of lists and compiled tables.
//!
//! A fault says where it is, what was expected and what was found. riskgate loads a table in
//! several steps; for example, it reads the lists, and then parses them. A step collects its
//! faults, so that an operator sees them together. If a step has a fault, the next step does not
//! run, and there is no table.

use std::io;
use std::ops::Range;
use std::path::Path;

use crate::model::typed_address::first_mark_of_address;
use crate::support::excerpt::Excerpt;
use crate::support::regular_file::{ReadError, is_transient_io_error};

/// The number of faults that a [`TableFaults`] keeps. It only counts further faults.
const MAX_KEPT_FAULTS: usize = 20;
/// The longest quote from a file in a fault, in characters.
const MAX_QUOTED_CHARS: usize = 60;

/// One fault.
#[derive(Debug, thiserror::Error)]
pub enum TableFault {
    /// A file does not have what was expected.
    #[error("{at}: expected {expected}, but found {found}")]
    Expected {
        /// File, line and key, as far as they are known.
        at: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
        /// The line, if it may be shown.
        excerpt: Option<Box<Excerpt>>,
    },
    /// A text in TOML has a fault.
    #[error("{at}: {message}")]
    Toml {
        /// File and line.
        at: String,
        /// The parser's message.
        message: String,
    },
    /// A file cannot be read or written.
    #[error("{at}: {source}")]
    Io {
        /// The file.
        at: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file, a name, an address or a vote letter occurs a second time.
    #[error("{at}: expected {what} once, but found it again (first in line {first})")]
    Duplicate {
        /// File and line.
        at: String,
        /// What occurs a second time.
        what: String,
        /// The line of its first occurrence.
        first: u32,
    },
    /// The table would flag a protected name.
    #[error("{at}: a protected name would be flagged: {name} (guard.allow_flagging allows it)")]
    FlagsProtected {
        /// The file and line that would flag it, or the table.
        at: String,
        /// The name.
        name: String,
    },
    /// Too many rows of a table, or of one of its lists, differ from the serving table.
    #[error(
        "{at}: expected at most {max} of {before} rows to be added or removed, but found \
         {added} new and {removed} gone (guard.max_changed_share)"
    )]
    TooManyChanges {
        /// The table, and the list if the fault is about one list.
        at: String,
        /// The number of rows that may differ.
        max: usize,
        /// The number of rows in the serving table or list.
        before: usize,
        /// The number of rows that the new table gains; 0 for a list.
        added: usize,
        /// The number of rows that the new table or list loses.
        removed: usize,
    },
}

impl TableFault {
    /// A fault from its location, what was expected and what was found.
    pub(super) fn expected(
        at: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> TableFault {
        let (at, expected, found) = (at.into(), expected.into(), found.into());
        TableFault::Expected { at, expected, found, excerpt: None }
    }

    /// Adds the line to a fault that says what was expected.
    pub(super) fn with_excerpt(mut self, line: Excerpt) -> TableFault {
        if let TableFault::Expected { excerpt, .. } = &mut self {
            *excerpt = Some(Box::new(line));
        }
        self
    }

    /// The text for a terminal: the fault, and its line if that may be shown.
    fn to_text(&self) -> String {
        match self {
            TableFault::Expected { excerpt: Some(excerpt), .. } => {
                format!("{self}\n{}", excerpt.render(None))
            }
            _ => self.to_string(),
        }
    }

    /// A fault that the system reported for a file.
    pub(super) fn io(path: &Path, source: io::Error) -> TableFault {
        TableFault::Io { at: path.display().to_string(), source }
    }
}

/// Quotes a text from a file, or one in place of a domain, for a fault. Shortens a long text, and
/// does not quote a text with an @, because it may be an e-mail address, or with an encoded @.
pub fn quote_excerpt(text: &str) -> String {
    match first_mark_of_address(text) {
        None => {}
        Some('%') => return "a text with a %".to_owned(),
        Some('&') => return "a text with an &".to_owned(),
        Some('\\') => return "a text with a \\".to_owned(),
        Some(_) => return "a text with an @".to_owned(),
    }
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Why a table can't be loaded: one or more faults.
#[derive(Debug, Default, thiserror::Error)]
#[error("{}", self.render_each(ToString::to_string).join("\n"))]
pub struct TableFaults {
    faults: Vec<TableFault>,
    fault_count: usize,
}

impl TableFaults {
    /// The first faults, in the order in which they were found. At most 20 are kept.
    pub fn faults(&self) -> &[TableFault] {
        &self.faults
    }

    /// Whether the system could not read a file for now. A later build may then succeed although no
    /// file changes.
    pub fn is_transient(&self) -> bool {
        self.faults.iter().any(|fault| match fault {
            TableFault::Io { source, .. } => is_transient_io_error(source),
            _ => false,
        })
    }

    /// The faults as texts for a terminal, with the lines that may be shown.
    pub fn faults_as_text(&self) -> Vec<String> {
        self.render_each(TableFault::to_text)
    }

    /// Renders the kept faults, and says how many more there are.
    fn render_each(&self, render: impl Fn(&TableFault) -> String) -> Vec<String> {
        let mut texts: Vec<String> = self.faults.iter().map(render).collect();
        match self.fault_count - self.faults.len() {
            0 => {}
            more => texts.push(format!("and {more} more")),
        }
        texts
    }

    /// The number of faults, including those that are not kept.
    pub fn fault_count(&self) -> usize {
        self.fault_count
    }

    pub(super) fn push(&mut self, fault: TableFault) {
        self.fault_count += 1;
        if self.faults.len() < MAX_KEPT_FAULTS {
            self.faults.push(fault);
        }
    }

    /// Returns the error if there is at least one fault.
    pub(super) fn into_result(self) -> Result<(), TableFaults> {
        if self.fault_count == 0 { Ok(()) } else { Err(self) }
    }
}

impl From<TableFault> for TableFaults {
    fn from(fault: TableFault) -> TableFaults {
        TableFaults { faults: vec![fault], fault_count: 1 }
    }
}

/// A fault that the TOML parser reported, with its line.
pub(super) fn fault_from_toml_error(
    error: &toml::de::Error,
    text: &str,
    name_in_faults: &str,
) -> TableFault {
    let line = error.span().map_or(1, |span| line_number(text, &span));
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    TableFault::Toml { at: format!("{name_in_faults}:{line}"), message }
}

/// The number of the line in which a span begins, counted from 1.
pub(super) fn line_number(text: &str, span: &Range<usize>) -> u32 {
    let before = text.as_bytes().get(..span.start).unwrap_or_default();
    1 + before.iter().filter(|b| **b == b'\n').count() as u32
}

/// The fault of a file that could not be read.
pub(super) fn fault_from_read_error(path: &Path, read_error: ReadError) -> TableFault {
    let name_in_faults = path.display().to_string();
    match read_error {
        ReadError::Io(error) if error.kind() == io::ErrorKind::NotFound => TableFault::expected(
            name_in_faults,
            "a directory of lists or a compiled table",
            "nothing",
        ),
        ReadError::Io(error) => TableFault::io(path, error),
        ReadError::NotRegular(kind) => TableFault::expected(name_in_faults, "a regular file", kind),
        ReadError::TooLarge { max, found } => {
            TableFault::expected(name_in_faults, format!("at most {max} bytes"), found.to_string())
        }
    }
}

#[cfg(test)]
mod tests;
