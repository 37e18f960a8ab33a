//! What the gateway keeps beyond its own life: the quota ledger, keys, accounts, top counts.
//!
//! Owns the words that pass between the state in memory and a store, and the promise of each
//! verb. A second store (Redis, for several nodes) takes its place beside `sqlite` and keeps the
//! same promises. It decides nothing about admission, and knows no HTTP and no config.

mod open;
mod rows;
pub mod sqlite;

use std::path::PathBuf;

use crate::month::Month;

pub use sqlite::Sqlite as Store;

/// Where the store is: `store.url`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `sqlite:PATH`, one file beside the gateway.
    Sqlite(PathBuf),
}

impl StoreUrl {
    /// The store that a setting names.
    pub fn parse(text: &str) -> Result<StoreUrl, StoreError> {
        match text.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(StoreUrl::Sqlite(PathBuf::from(path))),
            _ => Err(StoreError::Url { found: text.to_owned() }),
        }
    }
}

/// What went wrong in the store; nothing was half-applied.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The setting names no store that we know.
    #[error("expected sqlite:PATH, but found {found:?}")]
    Url {
        /// What the setting says.
        found: String,
    },
    /// The file is there but is not ours, is damaged, or can't be opened.
    #[error("{path}: expected {expected}, but found {found}")]
    Unusable {
        /// The store's file.
        path: String,
        /// What would have been right.
        expected: &'static str,
        /// What is there, and what to do.
        found: String,
    },
    /// A statement failed.
    #[error("{path}: {doing}: {source}")]
    Failed {
        /// The store's file.
        path: String,
        /// What was being done.
        doing: &'static str,
        /// What the engine says.
        source: rusqlite::Error,
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
            StoreError::Failed { source, .. } => source.sqlite_error_code(),
            _ => None,
        };
        matches!(code, Some(DatabaseBusy | DatabaseLocked))
    }
}

/// "My own number shall be `target`": one node's statement about one account and month.
///
/// It names totals and never differences, so that saying it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Whose calls.
    pub account: String,
    /// Which month they belong to.
    pub month: Month,
    /// Counts this node's statements; the store ignores one older than what it knows.
    pub sequence: u64,
    /// What the node would like to hold as leased, in all of this month.
    pub target: u64,
    /// What the node has spent or still holds: its number never falls below, whatever the limit.
    pub floor: u64,
    /// What the node has spent.
    pub spent: u64,
    /// The limit in force; `None` when unlimited.
    pub limit: Option<u64>,
}

/// The store's word on a [`Statement`], after its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// This node's leased number as it now stands.
    pub own: u64,
    /// The sum of what all other nodes have leased.
    pub others_leased: u64,
    /// The sum of what all other nodes have spent.
    pub others_spent: u64,
}

impl Standing {
    /// The number that a statement leads to, given what others hold: the one rule of the
    /// ledger, the same in every store.
    ///
    /// What goes beyond the floor is a grant, and is granted as far as the sum stays within the
    /// limit. The floor always stands: it was admitted, or may be at this moment.
    pub fn decide(statement: &Statement, others_leased: u64) -> u64 {
        let room = match statement.limit {
            Some(limit) => limit.saturating_sub(others_leased),
            None => u64::MAX,
        };
        statement.target.min(room).max(statement.floor)
    }
}

/// An account as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRow {
    /// Its name.
    pub name: String,
    /// Its plan, if one was set.
    pub plan: Option<String>,
    /// A limit of its own, instead of the plan's.
    pub limit: Option<LimitRow>,
}

/// A limit as it is stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitRow {
    /// Calls in a calendar month.
    Calls(u64),
    /// No limit.
    Unlimited,
}

/// A key as the store keeps it: never the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its public id, the one in logs.
    pub id: String,
    /// The account that it spends from.
    pub account: String,
    /// What its owner calls it.
    pub label: Option<String>,
    /// SHA-256 of the key.
    pub digest: [u8; 32],
    /// The origins that it is restricted to; none means unrestricted.
    pub origins: Vec<String>,
    /// Whether a request without `Origin` is refused.
    pub require_origin: bool,
    /// Unix seconds.
    pub created_at: i64,
    /// Unix seconds.
    pub expires_at: Option<i64>,
    /// Unix seconds.
    pub revoked_at: Option<i64>,
}

/// All keys and accounts of a store, read in one transaction.
#[derive(Clone, Debug)]
pub struct RingRows {
    /// Which store this is; drawn when it was created.
    pub store_id: String,
    /// Grows with every change of keys and accounts.
    pub version: u64,
    /// The accounts that were created or set.
    pub accounts: Vec<AccountRow>,
    /// The keys, revoked ones included.
    pub keys: Vec<KeyRow>,
}

/// One row of `riskgate usage`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// Whose calls.
    pub account: String,
    /// What all nodes say that they spent.
    pub spent: u64,
    /// What all nodes hold as leased, spent or not.
    pub leased: u64,
}

/// A row's count for the top list, as it is kept over restarts.
#[derive(Clone, Debug, PartialEq)]
pub struct TopRow {
    /// The name of the row that matched.
    pub domain: String,
    /// The decayed count at `at`.
    pub count: f64,
    /// Unix seconds.
    pub at: i64,
    /// Marks of some accounts that are behind it.
    pub accounts: Vec<u64>,
}
