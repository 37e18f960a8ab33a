//! Why an operation of an operator fails.

use crate::observe::redaction::redact_sent_text;
use crate::store::StoreError;
use crate::table::{TableFaults, quote_excerpt};

/// Why riskgate did not do an operation. The operation has changed nothing, with two exceptions:
/// - After a fault of the store, the store may have made the change.
/// - A failed change of overrides may have let the store take over the default file of overrides.
#[derive(Debug, thiserror::Error)]
pub enum ManagementFault {
    /// A value of the request is faulty.
    #[error("{field}: expected {expected}, but found {found}{}", hint_of(.meant.as_deref()))]
    Invalid {
        /// The name of the value.
        field: &'static str,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
        /// What to write in its place, if that is known.
        meant: Option<String>,
    },
    /// There is no such key or override. The text says what was expected and found.
    #[error("{0}")]
    NotFound(String),
    /// The present state does not allow the operation. The text says why.
    #[error("{0}")]
    Conflict(String),
    /// The operator must say that the operation is meant even so, by `force`. The text says why.
    #[error("{0}")]
    ForceRequired(String),
    /// A file that riskgate reads is faulty; one line for each fault.
    #[error("{}", .0.join("\n"))]
    File(Vec<String>),
    /// The system gave no random bits.
    #[error("{0}")]
    NoRandomBits(String),
    /// The store failed, or refused the change.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A list of the table or the file of overrides is faulty.
    #[error(transparent)]
    Table(#[from] TableFaults),
}

/// The most characters of what was found that an answer shows.
const MAX_SHOWN_CHARS: usize = 80;

/// Returns the end of a fault: what to write in place of what was found.
fn hint_of(meant: Option<&str>) -> String {
    meant.map(|meant| format!("; write {meant}")).unwrap_or_default()
}

impl ManagementFault {
    /// The fault of the value `field`, without a hint.
    pub fn invalid(
        field: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> ManagementFault {
        let (expected, found) = (expected.into(), found.into());
        ManagementFault::Invalid { field, expected, found, meant: None }
    }

    /// The fault of a text that a parser refuses. The parser's error says what it expected.
    pub(super) fn of_parse_error(
        field: &'static str,
        error: &impl std::fmt::Display,
        text: &str,
    ) -> ManagementFault {
        let error = error.to_string();
        let expected = error.strip_prefix("expected ").unwrap_or(&error);
        ManagementFault::invalid(field, expected, quote_excerpt(text))
    }

    /// Adds to a faulty value what to write in its place, if that is known.
    #[must_use]
    pub(super) fn with_meant(self, meant: Option<String>) -> ManagementFault {
        match self {
            ManagementFault::Invalid { field, expected, found, .. } => {
                ManagementFault::Invalid { field, expected, found, meant }
            }
            fault => fault,
        }
    }

    /// The fault as an answer to a client shows it: without what may be a key or an e-mail address,
    /// and without the end of a long value. A hint with such a part is left out. What was expected
    /// comes from riskgate and its config.
    #[must_use]
    pub fn for_client(self) -> ManagementFault {
        match self {
            ManagementFault::Invalid { field, expected, found, meant } => {
                let meant = meant.filter(|it| redact_sent_text(it) == *it);
                let mut found = redact_sent_text(&found);
                if let Some((end, _)) = found.char_indices().nth(MAX_SHOWN_CHARS) {
                    found.truncate(end);
                    found.push('…');
                }
                ManagementFault::Invalid { field, expected, found, meant }
            }
            fault => fault,
        }
    }
}
