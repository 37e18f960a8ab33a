//! Feeds: lists of domains that others publish, fetched while riskgate runs.
//!
//! Owns the settings of a feed and its update: fetch, verify, check, store. If a new list fails a
//! check, riskgate keeps the last good list. `table` decides how a row of a feed changes a verdict.
//! The caller decides when a feed is fetched.

mod checks;
mod config;
mod error;
mod fetch;
mod status;
mod storage;
mod update;

pub use config::{Feed, Feeds};
pub use error::FeedError;
pub use fetch::{FeedUrl, is_minisign_public_key};
pub use status::{FeedStatus, LastAttempt};
pub use storage::FeedState;
pub use update::UpdateOutcome;
