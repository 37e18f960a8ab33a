//! Faults of the operations of an operator.

use crate::store::StoreError;
use crate::table::TableFaults;

/// Why riskgate did not do an operation. Nothing was changed, except after
/// [`StoreError::Unavailable`]: then the store may have made the change.
#[derive(Debug, thiserror::Error)]
pub enum ManagementFault {
    /// A value of the request is faulty.
    #[error("{field}: expected {expected}, but found {found}")]
    Invalid {
        /// The name of the value.
        field: &'static str,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// There is no such key or override. The text says what was expected and found.
    #[error("{0}")]
    NotFound(String),
    /// The present state does not allow the operation. The text says why.
    #[error("{0}")]
    Conflict(String),
    /// A file that riskgate reads is faulty; one line for each fault.
    #[error("{}", .0.join("\n"))]
    File(Vec<String>),
    /// The system gave no random bits.
    #[error("{0}")]
    NoRandomBits(String),
    /// The store did not make the change.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The table or the file of overrides is faulty.
    #[error(transparent)]
    Table(#[from] TableFaults),
}

impl ManagementFault {
    pub(super) fn invalid(
        field: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> ManagementFault {
        ManagementFault::Invalid { field, expected: expected.into(), found: found.into() }
    }
}
