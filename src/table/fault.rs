//! What can be wrong with the sources of a table or with a compiled one.
//!
//! A fault says where it is, what was expected and what was found. A load collects its faults,
//! so that one look shows them all; any single one refuses the whole table.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::support::regular_file::Unreadable;

/// How many faults a [`TableError`] keeps; it counts the others.
const SHOWN: usize = 20;
/// How much of a foreign text a fault repeats, in characters.
const QUOTED: usize = 60;

/// One thing that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Something else stands there than should.
    #[error("{at}: expected {expected}, but found {found}")]
    Expected {
        /// File, line and key, as far as they are known.
        at: String,
        /// What should stand there.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// The text is no TOML, or not that of a manifest.
    #[error("{at}: {message}")]
    Toml {
        /// File and line.
        at: String,
        /// What the parser says.
        message: String,
    },
    /// A file cannot be read or written.
    #[error("{at}: {source}")]
    Io {
        /// The file.
        at: String,
        /// What the system says.
        source: io::Error,
    },
    /// The same thing is said a second time.
    #[error("{at}: expected {what} once, but found it again (first in line {first})")]
    Twice {
        /// File and line.
        at: String,
        /// What is said.
        what: String,
        /// Where it was said first.
        first: u32,
    },
    /// A name that must not be flagged would be.
    #[error("{at}: would flag a protected name: {name} (guard.flag_protected allows it)")]
    FlagsProtected {
        /// The file and line that would flag it, or the table.
        at: String,
        /// The name.
        name: String,
    },
    /// Too much differs from the table that serves.
    #[error(
        "{at}: expected at most {most} of {before} rows to come or go, but found {came} new and \
         {went} gone (guard.max_changed_share)"
    )]
    Changed {
        /// The table.
        at: String,
        /// How many rows may differ.
        most: usize,
        /// How many rows the table that serves has.
        before: usize,
        /// Rows that it does not have.
        came: usize,
        /// Rows that only it has.
        went: usize,
    },
}

impl Fault {
    /// The fault of a text that should be something else.
    pub(super) fn expected(
        at: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Fault {
        Fault::Expected { at: at.into(), expected: expected.into(), found: found.into() }
    }

    /// The fault that the system reports for a file.
    pub(super) fn io(path: &Path, source: io::Error) -> Fault {
        Fault::Io { at: path.display().to_string(), source }
    }
}

/// A foreign text as a fault repeats it: quoted, short, and never an e-mail address.
pub(super) fn quoted(text: &str) -> String {
    if text.contains('@') {
        return "a text with an @".to_owned();
    }
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Why there is no table: one fault or many.
#[derive(Debug, Default)]
pub struct TableError {
    faults: Vec<Fault>,
    count: usize,
}

impl TableError {
    /// The first faults, in the order in which they were found.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// How many faults there are, also those that are not kept.
    pub fn count(&self) -> usize {
        self.count
    }

    pub(super) fn push(&mut self, fault: Fault) {
        self.count += 1;
        if self.faults.len() < SHOWN {
            self.faults.push(fault);
        }
    }

    /// Nothing, if there is no fault.
    pub(super) fn into_result(self) -> Result<(), TableError> {
        if self.count == 0 { Ok(()) } else { Err(self) }
    }
}

impl From<Fault> for TableError {
    fn from(fault: Fault) -> TableError {
        TableError { faults: vec![fault], count: 1 }
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        match self.count - self.faults.len() {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for TableError {}

/// The fault that the TOML parser reports, with its line.
pub(super) fn toml_fault(error: &toml::de::Error, text: &str, place: &str) -> Fault {
    let line = error.span().map_or(1, |span| line_of(text, &span));
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    Fault::Toml { at: format!("{place}:{line}"), message }
}

/// The line of a text at which a span begins, counted from 1.
pub(super) fn line_of(text: &str, span: &Range<usize>) -> u32 {
    let before = text.as_bytes().get(..span.start).unwrap_or_default();
    1 + before.iter().filter(|b| **b == b'\n').count() as u32
}

/// What is wrong with a file, where it should be regular and not too large.
pub(super) fn unreadable(path: &Path, found: Unreadable) -> Fault {
    let place = path.display().to_string();
    match found {
        Unreadable::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            Fault::expected(place, "a folder of lists or a compiled table", "nothing")
        }
        Unreadable::Io(error) => Fault::io(path, error),
        Unreadable::Kind(kind) => Fault::expected(place, "a regular file", kind),
        Unreadable::TooLarge { most, found } => {
            Fault::expected(place, format!("at most {most} bytes"), found.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_twenty_faults_and_counts_the_rest() {
        let mut error = TableError::default();
        for line in 1..=25 {
            error.push(Fault::expected(format!("a.txt:{line}"), "a name", quoted("-")));
        }
        let text = error.to_string();
        assert_eq!(text.lines().count(), 21);
        assert!(text.starts_with("a.txt:1: expected a name, but found \"-\"\n"));
        assert!(text.ends_with("\nand 5 more"));
        assert_eq!(error.count(), 25);
    }

    #[test]
    fn no_fault_repeats_an_address_or_a_long_text() {
        assert!(!quoted("user@example.com").contains("example"));
        assert!(quoted(&"a".repeat(500)).len() < 80);
    }
}
