//! Feeds: lists of domains that others publish, and that riskgate fetches while it runs.
//!
//! Owns the settings of a feed, and its update: riskgate fetches, verifies, checks and stores the
//! list. If a new list fails a check, riskgate keeps the last good list. `table` decides how a row
//! of a feed changes a verdict. The caller decides when riskgate fetches a feed.

mod checks;
mod config;
mod error;
mod fetch;
mod list_formats;
mod status;
mod storage;
mod stored_names;
#[cfg(test)]
mod tests;
mod update;
mod verified_list;

pub use config::{Feed, Feeds};
pub use error::FeedError;
pub use fetch::{FeedLocation, ProxySettings, is_minisign_public_key};
pub use status::{FeedStatus, LastAttempt};
pub use storage::FeedState;
pub use update::UpdateOutcome;
pub use verified_list::VerifiedList;
