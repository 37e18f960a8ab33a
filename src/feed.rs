//! Feeds: lists of domains that others keep fresh, fetched while riskgate runs.
//!
//! Owns what a feed is and how one is brought up to date: fetch, verify, judge, keep. A list that
//! can't be believed leaves the last good one in place. What a row does to a verdict is decided
//! where the table is built; when a feed is fetched is decided by whoever calls.

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
