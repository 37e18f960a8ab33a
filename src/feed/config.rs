//! The settings of a feed, and the file of its list.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fetch::FeedUrl;
use crate::table::{FeedKind, FeedList};

/// The settings of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// The feed's unique name: lower-case letters, digits and hyphens.
    pub name: String,
    /// The URL or path of the list.
    pub url: FeedUrl,
    /// The kind of the list's names.
    pub kind: FeedKind,
    /// How often riskgate fetches the list.
    pub interval: Duration,
    /// If the list has not changed for this long, riskgate reports it, because its publisher may
    /// have stopped.
    pub max_age: Duration,
    /// The largest list that riskgate accepts, in bytes.
    pub max_bytes: u64,
    /// The largest share of rows that an update may add, and that it may remove, in percent.
    pub max_changed_percent: u64,
    /// The URL of a text that begins with the list's SHA-256 in hexadecimal, such as the output of
    /// `sha256sum`.
    pub sha256_url: Option<FeedUrl>,
    /// The minisign public key that verifies the list's signature. The signature's path is that of
    /// `url` with `.minisig` appended.
    pub public_key: Option<String>,
}

/// All feeds, and the directory that keeps their last good lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feeds {
    /// The feeds, in the order of the config.
    pub feeds: Vec<Feed>,
    /// The directory with the feeds' lists and states.
    pub dir: PathBuf,
}

impl Feeds {
    /// The list files of all feeds, as inputs of a table.
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
    /// The file of the last good list. Its name contains the kind: if the operator changes the
    /// feed's kind, the old list is not used with the new kind.
    pub(super) fn list_path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.{}.txt", self.name, self.kind.as_str()))
    }
}
