//! What a feed is, as the config says it, and where its list lies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fetch::FeedUrl;
use crate::table::{FeedKind, FeedList};

/// One feed, as the config says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Lower-case letters, digits and hyphens; no other feed has it.
    pub name: String,
    /// Where the list is.
    pub url: FeedUrl,
    /// What its rows are.
    pub kind: FeedKind,
    /// How often it is fetched.
    pub interval: Duration,
    /// A list that has not changed for this long is told: its publisher may have stopped.
    pub max_age: Duration,
    /// The largest list that is taken, in bytes.
    pub max_bytes: u64,
    /// The share of its rows that may come, and that may go, from one list to the next, in percent.
    pub max_changed_percent: u64,
    /// Where the SHA-256 of the list is, in hexadecimal, alone or before a file name.
    pub sha256_url: Option<FeedUrl>,
    /// The minisign public key that signs the list; the signature is at the URL with `.minisig`.
    pub public_key: Option<String>,
}

/// All feeds, and the directory that keeps their last good lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feeds {
    /// The feeds, in the order of the config.
    pub feeds: Vec<Feed>,
    /// Where their lists and what is known of them are kept.
    pub dir: PathBuf,
}

impl Feeds {
    /// The lists as the table takes them.
    pub fn feed_lists(&self) -> Vec<FeedList> {
        let list = |feed: &Feed| FeedList {
            name: feed.name.clone(),
            kind: feed.kind,
            path: feed.list_path(&self.dir),
        };
        self.feeds.iter().map(list).collect()
    }
}

impl Feed {
    /// The file of the last good list. A list of another kind has another file: it must not pass
    /// for one of this kind.
    pub(super) fn list_path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.{}.txt", self.name, self.kind.as_str()))
    }
}
