//! The settings of a feed, and the file of its list.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fetch::{FeedLocation, ProxySettings};
use super::verified_list::VerifiedList;
use crate::table::{FeedKind, FeedList};

/// The settings of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// The feed's unique name: lower-case letters, digits and hyphens.
    pub name: String,
    /// The URL or path of the list.
    pub url: FeedLocation,
    /// The kind of the list's names.
    pub kind: FeedKind,
    /// How often riskgate fetches the list.
    pub fetch_interval: Duration,
    /// If the list has not changed for longer than this, riskgate reports a problem: the publisher
    /// may have given up the list.
    pub max_unchanged_age: Duration,
    /// The largest list that riskgate accepts, in bytes.
    pub max_list_bytes: u64,
    /// An update may add at most this share of the last list's rows, and may remove at most this
    /// share. In percent. Once the last good list is older than `fetch_interval`, the share grows.
    pub max_changed_percent: u64,
    /// Whether the list changes by design, such as the most abused names of each day. Then
    /// `max_changed_percent` limits only how much longer or shorter an update makes the list.
    pub is_rolling: bool,
    /// How long the table keeps the names that have left the list. Zero: not at all.
    pub keep_departed: Duration,
    /// The URL of a text that begins with the list's SHA-256 in hexadecimal, such as the output of
    /// `sha256sum`.
    pub sha256_url: Option<FeedLocation>,
    /// The minisign public key that verifies the list's signature. riskgate fetches the signature
    /// from `url`, with `.minisig` appended to its path.
    pub minisign_public_key: Option<String>,
    /// A file of authorities that riskgate trusts besides the bundled ones and those of the system,
    /// in PEM form.
    pub tls_ca: Option<PathBuf>,
    /// The proxy for lists at `https://`.
    pub proxy: ProxySettings,
    /// What this process knows of the list on disk. Clones of the feed share this knowledge.
    pub verified_list: VerifiedList,
}

/// The enabled feeds, and the directory that keeps their last good lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feeds {
    /// The feeds, in the order of the config.
    pub feeds: Vec<Feed>,
    /// The directory with the feeds' lists and states.
    pub dir: PathBuf,
    /// Whether the config has a section for a feed, even if it switches the feed off.
    pub are_configured: bool,
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
    /// The file of the last good list. Its name contains the kind, without the tier: if the
    /// operator changes the kind, the old list is not used with the new kind.
    pub(super) fn list_path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.{}.txt", self.name, self.kind.as_str()))
    }
}
