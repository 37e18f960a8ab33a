//! `[table]` and `[[table.feed]]`: what the table is made of.

use std::path::PathBuf;
use std::time::Duration;

use super::settings::Settings;
use super::written::Written;
use crate::feed::{Feed, FeedUrl, Feeds, is_public_key};
use crate::table::{FeedKind, FeedTier, Source, TableSources};

/// Where the operator's own overrides are, unless the config says otherwise.
const OVERRIDES: &str = "conf/overrides.csv";
/// Where the lists of feeds are kept, unless the config says otherwise.
const FEED_FOLDER: &str = "state/feeds";
const LARGEST_LIST: u64 = 64 << 20;
const LONGEST_NAME: usize = 32;

impl Settings {
    /// The lists that the table stands on, with what is added to them.
    pub fn table_sources(&mut self, feeds: &Feeds) -> TableSources {
        let path = |text: String| PathBuf::from(text);
        TableSources {
            base: self.text("table.path").map_or(Source::Bundled, |text| Source::Path(path(text))),
            overrides: self.folder("table.overrides", OVERRIDES),
            last_good_overrides: None,
            feeds: feeds.lists(),
        }
    }

    /// `[[table.feed]]`, those that are switched on.
    pub fn feeds(&mut self) -> Feeds {
        let folder = self.text("table.feed_folder").unwrap_or_else(|| FEED_FOLDER.to_owned());
        let mut all: Vec<Feed> = Vec::new();
        for at in self.members("table.feed") {
            let is_enabled = self.flag(&format!("{at}.enabled"), true);
            let feed = self.feed(&at, &all);
            all.extend(feed.filter(|_| is_enabled));
        }
        Feeds { all, folder: PathBuf::from(folder) }
    }

    fn feed(&mut self, at: &str, others: &[Feed]) -> Option<Feed> {
        let name = |written: &Written| {
            let text = written.text()?;
            let is_good =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            let is_taken = others.iter().any(|other| other.name == text);
            (!text.is_empty()
                && text.len() <= LONGEST_NAME
                && text.bytes().all(is_good)
                && !is_taken)
                .then(|| text.to_owned())
        };
        let name = self.needed(
            &format!("{at}.name"),
            "a name of a-z, 0-9 and -, which no other feed has",
            name,
        );
        let parse_url = |written: &Written| FeedUrl::parse(written.text()?);
        let expected = "https://…, http://… on this machine, or the path of a file";
        let url = self.needed(&format!("{at}.url"), expected, parse_url);
        let sha256_url = self.parsed(&format!("{at}.sha256_url"), expected, parse_url);
        let key = |written: &Written| {
            written.text().filter(|text| is_public_key(text)).map(str::to_owned)
        };
        let public_key = self.parsed(
            &format!("{at}.public_key"),
            "the base64 line of a minisign public key",
            key,
        );
        let kind = match self.choice(&format!("{at}.kind"), &["disposable", "alias", "free"]) {
            "alias" => FeedKind::Alias,
            "free" => FeedKind::Free,
            _ => FeedKind::Disposable(
                match self.choice(&format!("{at}.tier"), &["c", "a", "b", "d"]) {
                    "a" => FeedTier::A,
                    "b" => FeedTier::B,
                    "d" => FeedTier::D,
                    _ => FeedTier::C,
                },
            ),
        };
        let interval = self.time(&format!("{at}.interval"), Duration::from_hours(24));
        let max_age = self.duration(&format!("{at}.max_age"), Duration::from_hours(30 * 24));
        let max_bytes = self.count(&format!("{at}.max_bytes"), 1..=LARGEST_LIST, 16 << 20);
        let max_changed_percent = self.count(&format!("{at}.max_changed_percent"), 1..=100_000, 50);
        Some(Feed {
            name: name?,
            url: url?,
            kind,
            interval: interval.max(Duration::from_secs(1)),
            max_age,
            max_bytes,
            max_changed_percent,
            sha256_url,
            public_key,
        })
    }

    /// A setting without a default.
    fn needed<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl Fn(&Written) -> Option<T>,
    ) -> Option<T> {
        if !self.found.contains_key(key) {
            self.missing(key, expected);
        }
        self.parsed(key, expected, parse)
    }
}
