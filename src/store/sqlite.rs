//! The embedded store: one SQLite file in WAL mode, with `synchronous=FULL`.
//!
//! Owns the operations and their transactions. Several processes may have the file open at once: a
//! gateway, its successor during an upgrade, and commands. If an operation returns `Ok`, its
//! changes are on disk. riskgate never replaces or empties a file that it does not recognize as a
//! store of a known version.

mod audit;
mod columns;
pub(super) mod connection;
mod daily_usage;
mod expired_rows;
pub(super) mod files;
mod inbox_secret;
mod learned;
mod ledger;
mod meta;
mod month;
pub(super) mod open;
mod overrides;
mod quota_events;
mod ring;
mod rows;
mod schema;
mod sign_ups;
mod top;
