//! What can go wrong in a store.

/// What went wrong in the store; nothing was half-applied.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The setting names no store that we know.
    #[error("expected {expected}, but found {found:?}")]
    Url {
        /// What would have been right.
        expected: &'static str,
        /// What the setting says, without a password.
        found: String,
    },
    /// It is there but is not ours, is damaged, can't be opened, or is set up so that it would
    /// lose what it acknowledged.
    #[error("{location}: expected {expected}, but found {found}")]
    Unusable {
        /// The store's file or address.
        location: String,
        /// What would have been right.
        expected: &'static str,
        /// What is there, and what to do.
        found: String,
    },
    /// The embedded store failed.
    #[error("{location}: {operation}: {source}")]
    Sqlite {
        /// The store's file.
        location: String,
        /// What was being done.
        operation: &'static str,
        /// What the engine says.
        source: rusqlite::Error,
    },
    /// A server did not answer, or not with what was asked for.
    #[error("{location}: {operation}: {found}")]
    Unavailable {
        /// The store's address.
        location: String,
        /// What was being done.
        operation: &'static str,
        /// What came instead of an answer.
        found: String,
    },
    /// A key or account that is not there, or is there already.
    #[error("{0}")]
    Conflict(String),
}

impl StoreError {
    /// Whether another process held a lock, so that trying again may help.
    pub fn is_busy(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        let code = match self {
            StoreError::Sqlite { source, .. } => source.sqlite_error_code(),
            _ => None,
        };
        matches!(code, Some(DatabaseBusy | DatabaseLocked))
    }
}

pub(super) fn key_exists_error(id: &str, known: &str) -> StoreError {
    StoreError::Conflict(format!(
        "key {id}: expected a new key, but found it in the store as {known}"
    ))
}

pub(super) fn unknown_key_error(id: &str) -> StoreError {
    StoreError::Conflict(format!("expected the id of a key in the store, but found {id:?}"))
}

pub(super) fn key_ended_error() -> StoreError {
    StoreError::Conflict("expected a key that is in use, but it has ended".to_owned())
}

pub(super) fn store_not_empty_error(location: &str) -> StoreError {
    StoreError::Conflict(format!(
        "{location}: expected an empty store, but found one with keys, accounts or numbers"
    ))
}
