//! Errors of a store.

/// Why an operation on a store failed. After `Unavailable`, the server may have applied the
/// operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// `store.url` has none of the accepted forms.
    #[error("expected {expected}, but found {found:?}")]
    InvalidUrl {
        /// The accepted forms.
        expected: &'static str,
        /// The setting, without a password.
        found: String,
    },
    /// The store can't be used as it is: for example, the file is missing, damaged or belongs to
    /// another program, or the server may evict acknowledged data.
    #[error("{location}: expected {expected}, but found {found}")]
    Unusable {
        /// The store's file or address.
        location: String,
        /// The value or state that was expected.
        expected: &'static str,
        /// The state that was found, and how to repair it.
        found: String,
    },
    /// SQLite failed.
    #[error("{location}: {operation}: {source}")]
    Sqlite {
        /// The store's file.
        location: String,
        /// The operation that failed.
        operation: &'static str,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The store can't do the operation now. For example, the server did not answer, gave an
    /// unexpected answer, or has too few replicas; or the disk of an SQLite store is full.
    #[error("{location}: {operation}: {found}")]
    Unavailable {
        /// The address of the server, or the path of the file.
        location: String,
        /// The operation that failed.
        operation: &'static str,
        /// What happened, for example an I/O error or a timeout.
        found: String,
    },
    /// The store's reply breaks a rule of the ledger, so nothing in it can be trusted.
    #[error("{subject}: expected {expected}, but the store answered {found}")]
    InvalidReply {
        /// The account or operation that the reply is about.
        subject: String,
        /// The rule.
        expected: &'static str,
        /// The reply.
        found: String,
    },
    /// A new key names another plan than that of its account.
    #[error(
        "plan: expected {present}, the plan of the account {account}, but found {found}; to change \
         it: riskgate accounts set {account} --plan {found}"
    )]
    OtherPlan {
        /// The account.
        account: String,
        /// Its plan.
        present: String,
        /// The plan that was given with the key.
        found: String,
    },
    /// The contents of the store don't allow the operation: for example, a key does not exist,
    /// exists already or has ended, or a store that should be filled is not empty. Or this machine
    /// gives the ledger no random bits or no thread.
    #[error("{0}")]
    Conflict(String),
}

/// What to do if the store of a gateway is damaged, or is no store.
pub(super) const CORRUPTION_ADVICE: &str =
    "move it away with its -wal and -shm, then restore a backup or start afresh";

impl StoreError {
    /// Returns true if another connection held SQLite's lock, so that a retry may succeed.
    pub fn is_sqlite_locked(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
        let code = match self {
            StoreError::Sqlite { source, .. } => source.sqlite_error_code(),
            _ => None,
        };
        matches!(code, Some(DatabaseBusy | DatabaseLocked))
    }

    /// Removes the advice to move a damaged file away. The advice is for the store of a gateway:
    /// any other path may be wrong.
    #[must_use]
    pub fn without_corruption_advice(self) -> StoreError {
        match self {
            StoreError::Unusable { location, expected, mut found } => {
                if let Some(at) = found.find(&format!("; {CORRUPTION_ADVICE}")) {
                    found.truncate(at);
                }
                StoreError::Unusable { location, expected, found }
            }
            other => other,
        }
    }
}

/// The error of a copy that would leave out a row that can't be read. `row` names this row.
pub(super) fn unreadable_row_error(row: &str) -> StoreError {
    StoreError::Conflict(format!("expected rows that can be read, but found another for {row}"))
}

pub(super) fn key_exists_error(id: &str, existing_id: &str) -> StoreError {
    StoreError::Conflict(format!(
        "key {id}: expected a new key, but found it in the store as {existing_id}"
    ))
}

pub(super) fn unknown_key_error(id: &str) -> StoreError {
    StoreError::Conflict(format!("expected the id of a key in the store, but found {id:?}"))
}

pub(super) fn key_ended_error() -> StoreError {
    StoreError::Conflict("expected a key that is in use, but it has ended".to_owned())
}

pub(super) fn repeated_request_error() -> StoreError {
    StoreError::Conflict(
        "expected a new request, but found one with the same Idempotency-Key; send it again"
            .to_owned(),
    )
}

/// What keeps a store from being filled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoundContents {
    pub has_keys_or_accounts: bool,
    pub has_overrides: bool,
    /// Totals of accounts.
    pub has_numbers: bool,
    pub has_sign_ups: bool,
    pub is_server: bool,
}

impl FoundContents {
    pub fn is_empty(&self) -> bool {
        let FoundContents {
            has_keys_or_accounts, has_overrides, has_numbers, has_sign_ups, ..
        } = self;
        !(*has_keys_or_accounts || *has_overrides || *has_numbers || *has_sign_ups)
    }
}

pub(super) fn store_not_empty_error(location: &str, found: FoundContents) -> StoreError {
    let parts = [
        (found.has_keys_or_accounts, "keys or accounts"),
        (found.has_overrides, "overrides"),
        (found.has_numbers, "numbers"),
        (found.has_sign_ups, "sign-ups"),
    ];
    let names: Vec<&str> = parts.into_iter().filter(|it| it.0).map(|it| it.1).collect();
    // Running gateways write numbers and sign-ups to a server that was emptied.
    let advice = match found.is_server && !found.has_keys_or_accounts && !found.has_overrides {
        true => {
            "; if these are what gateways wrote after the server was emptied: stop all gateways, \
             empty the database with FLUSHDB (or name a new one), and repeat this command"
        }
        false => "",
    };
    let names = names.join(", ");
    StoreError::Conflict(format!(
        "{location}: expected an empty store, but found one with {names}{advice}"
    ))
}

pub(super) fn store_filled_meanwhile_error(location: &str) -> StoreError {
    StoreError::Conflict(format!(
        "{location}: expected an empty store, but another process has written to it meanwhile"
    ))
}
