//! `[table]` and `[[table.feed]]`: the sources of the table.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Config;
use super::counterparts::find_in_section;
use super::description::toml_text;
use super::file_setting_places::hint_for_unopened;
use super::hints::find_nearest_name;
use super::raw_value::RawValue;
use super::settings::Settings;
use crate::feed::{Feed, FeedLocation, Feeds, ProxySettings, VerifiedList, is_minisign_public_key};
use crate::support::regular_file::parent_dir;
use crate::table::{FeedKind, FeedTier, TableInputs, TableLocation};

const OVERRIDES_SETTING: &str = "table.overrides";
/// The file of overrides that earlier versions wrote. The store takes over the rows of this file.
const FORMER_OVERRIDES_FILE: &str = "conf/overrides.csv";
/// The default directory of fetched feeds.
const DEFAULT_FEED_DIR: &str = "state/feeds";
/// The highest value of a feed's `max_bytes`.
const HIGHEST_FEED_MAX_BYTES: u64 = 64 << 20;
/// Where a list may be.
const FEED_LOCATION_FORMAT: &str = "https://…, http://… on this machine, or the path of a file";
const MAX_FEED_NAME_LEN: usize = 32;
/// The most files of a folder in which a misspelt name is looked for.
const MAX_FILES_IN_FOLDER: usize = 1_000;

/// A feed that riskgate knows: a section with its name needs no other setting.
struct KnownFeed {
    name: &'static str,
    url: &'static str,
    tier: &'static str,
    interval: Duration,
    is_rolling: bool,
    keep: Duration,
}

/// The feeds that riskgate knows. Their licences are in data/LICENSES.md.
const KNOWN_FEEDS: [KnownFeed; 2] = [
    // The 1,000 domains that Castle sees abused most on each day (MIT).
    KnownFeed {
        name: "castle",
        url: "https://raw.githubusercontent.com/castle/disposable-email-domains/master/\
              disposable-email-domains.txt",
        tier: "b",
        interval: Duration::from_hours(6),
        is_rolling: true,
        keep: Duration::from_hours(90 * 24),
    },
    // The list of disposable domains that people review (CC0). A name that these people remove was
    // a mistake for the most part, so riskgate does not keep the name.
    KnownFeed {
        name: "reviewed",
        url: "https://raw.githubusercontent.com/disposable-email-domains/\
              disposable-email-domains/main/disposable_email_blocklist.conf",
        tier: "a",
        interval: Duration::from_hours(24),
        is_rolling: false,
        keep: Duration::ZERO,
    },
];

impl Settings {
    /// Reads the lists, overrides and feeds that the table is built from.
    pub fn read_table_inputs(&mut self, feeds: &Feeds) -> TableInputs {
        TableInputs {
            base_location: self
                .read_table_path()
                .map_or(TableLocation::Bundled, TableLocation::Path),
            overrides_path: self.read_overrides_path(),
            is_default_overrides_path: !self.values.contains_key(OVERRIDES_SETTING),
            stored_overrides: None,
            last_good_overrides_text: None,
            last_good_lists: None,
            feeds: feeds.feed_lists(),
        }
    }

    fn read_table_path(&mut self) -> Option<PathBuf> {
        const KEY: &str = "table.path";
        let path = self.read_path(KEY);
        let text = self.texts_of(KEY).next().unwrap_or_default();
        if text.starts_with("https://") || text.starts_with("http://") {
            let problem = "expected the path of a directory of lists or of a compiled table, but \
                           found a URL";
            let hint = "write [[table.feed]], and below it name = … and url = … for each list";
            self.report_at_value(KEY, "…", problem, Some(hint.to_owned()));
            return None;
        }
        path
    }

    /// Reads the path of the file of overrides. Without the setting, returns the path at which
    /// earlier versions wrote the file. The file need not exist.
    fn read_overrides_path(&mut self) -> Option<PathBuf> {
        let path = self.read_path_or_default(OVERRIDES_SETTING, "");
        let raw = self.values.get(OVERRIDES_SETTING).map(|setting| &setting.raw);
        if matches!(raw, Some(RawValue::List(_))) {
            let own = find_in_section("table", "block").map(|it| it.hint.clone());
            self.replace_last_hint(own.unwrap_or_default());
        }
        match self.values.contains_key(OVERRIDES_SETTING) {
            true => {
                self.warn_of_misspelt_overrides(path.as_deref());
                path
            }
            false => Some(self.find_file_of_earlier_versions(FORMER_OVERRIDES_FILE)),
        }
    }

    /// Warns if the file of overrides is missing, and its folder is missing or has a file of almost
    /// this name. Otherwise somebody may write the file later.
    fn warn_of_misspelt_overrides(&mut self, path: Option<&Path>) {
        let Some(path) = path.filter(|path| !path.exists()) else { return };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let files = std::fs::read_dir(parent_dir(path)).into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        let names: Vec<String> = names.take(MAX_FILES_IN_FOLDER).collect();
        let near = find_nearest_name(&name, names.iter().map(String::as_str));
        let hint = match near {
            Some(near) => Some(format!("did you mean {near}?")),
            None if parent_dir(path).exists() => return,
            None => hint_for_unopened(path),
        };
        let problem = "expected a file, but found none, so no override is from a file";
        self.warn_at_value(OVERRIDES_SETTING, problem, hint);
    }

    /// Reads the `[[table.feed]]` entries, and returns those that are enabled.
    pub fn read_feeds(&mut self) -> Feeds {
        let dir = self.read_path_or_former_default("table.feed_dir", DEFAULT_FEED_DIR);
        let dir = dir.unwrap_or_else(|| PathBuf::from(DEFAULT_FEED_DIR));
        let mut all: Vec<Feed> = Vec::new();
        let entries = self.list_table_array_keys("table.feed");
        let are_configured = !entries.is_empty();
        for at in entries {
            let is_enabled = self.read_boolean(&format!("{at}.enabled"), true);
            let feed = self.read_feed(&at, &all);
            all.extend(feed.filter(|_| is_enabled));
        }
        Feeds { feeds: all, dir, are_configured }
    }

    fn read_feed_name(&mut self, entry_key: &str, earlier_feeds: &[Feed]) -> Option<String> {
        let name = |raw: &RawValue| {
            let text = raw.as_text()?;
            let is_good =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            (!text.is_empty() && text.len() <= MAX_FEED_NAME_LEN && text.bytes().all(is_good))
                .then(|| text.to_owned())
        };
        let key = format!("{entry_key}.name");
        let example = "\"own-list\", or \"castle\" without a url";
        let name = self.require_setting(&key, ("a name of a-z, 0-9 and -", example), name)?;
        if earlier_feeds.iter().any(|other| other.name == name) {
            self.report_taken(&key, "a name that no other feed has");
            return None;
        }
        Some(name)
    }

    fn read_feed(&mut self, entry_key: &str, earlier_feeds: &[Feed]) -> Option<Feed> {
        let name = self.read_feed_name(entry_key, earlier_feeds);
        let expected = FEED_LOCATION_FORMAT;
        let [url_key, sha256_key] = ["url", "sha256_url"].map(|key| format!("{entry_key}.{key}"));
        let own_url = self.values.contains_key(&url_key);
        let known = KNOWN_FEEDS.iter().find(|it| !own_url && Some(it.name) == name.as_deref());
        let url = match known {
            Some(known) => {
                self.read_feed_location(&url_key);
                self.note_default(toml_text(known.url));
                FeedLocation::parse(known.url)
            }
            None => {
                // A feed without a valid name may be a known one.
                if !own_url && name.is_some() {
                    let hint = Some(hint_for_missing_url(name.as_deref().unwrap_or_default()));
                    self.report_required_with_hint(&url_key, expected, hint);
                }
                self.read_feed_location(&url_key)
            }
        };
        let sha256_url = self.read_feed_location(&sha256_key);
        self.warn_of_missing_list(&url_key, url.as_ref());
        let key = |raw: &RawValue| {
            raw.as_text().filter(|text| is_minisign_public_key(text)).map(str::to_owned)
        };
        let public_key = self.parse_setting(
            &format!("{entry_key}.public_key"),
            "the base64 line of a minisign public key",
            key,
        );
        let tls_ca = self.read_further_authorities(&format!("{entry_key}.tls_ca"));
        let kind = self.read_feed_kind(entry_key, known.map_or("c", |known| known.tier));
        let interval = known.map_or(Duration::from_hours(24), |known| known.interval);
        let interval = self.read_seconds_or_longer(&format!("{entry_key}.interval"), interval);
        let max_age = Duration::from_hours(30 * 24);
        let max_age = self.read_seconds_or_longer(&format!("{entry_key}.max_age"), max_age);
        let max_bytes = self.read_integer(
            &format!("{entry_key}.max_bytes"),
            1..=HIGHEST_FEED_MAX_BYTES,
            16 << 20,
        );
        let max_changed_percent =
            self.read_integer(&format!("{entry_key}.max_changed_percent"), 1..=100_000, 50);
        let is_rolling = known.is_some_and(|known| known.is_rolling);
        let is_rolling = self.read_boolean(&format!("{entry_key}.rolling"), is_rolling);
        let keep = known.map_or(Duration::ZERO, |known| known.keep);
        let keep_departed = self.read_duration(&format!("{entry_key}.keep"), keep);
        Some(Feed {
            name: name?,
            url: url?,
            kind,
            fetch_interval: interval,
            max_unchanged_age: max_age,
            max_list_bytes: max_bytes,
            max_changed_percent,
            is_rolling,
            keep_departed,
            sha256_url,
            minisign_public_key: public_key,
            tls_ca,
            proxy: ProxySettings::read(Config::env_var),
            verified_list: VerifiedList::default(),
        })
    }

    fn read_feed_location(&mut self, key: &str) -> Option<FeedLocation> {
        let parse = |text: &str| FeedLocation::parse(text);
        let location = self.parse_setting(key, FEED_LOCATION_FORMAT, |raw| parse(raw.as_text()?));
        let text = self.texts_of(key).next().unwrap_or_default();
        let with_tls = text.strip_prefix("http://").map(|rest| format!("https://{rest}"));
        let is_without_tls = location.is_none() && with_tls.is_some_and(|it| parse(&it).is_some());
        self.hint_fault_of(key, is_without_tls.then(|| "write https in place of http".to_owned()));
        if text.starts_with("https://github.com/") && text.contains("/blob/") {
            let problem = "expected the URL of the list itself, but found that of its page";
            let hint =
                "write raw.githubusercontent.com in place of github.com, and leave /blob out";
            self.warn_at_value(key, problem, Some(hint.to_owned()));
        }
        match location? {
            FeedLocation::File(path) => {
                let text = path.to_string_lossy().into_owned();
                self.path_of_text(key, text).map(FeedLocation::File)
            }
            url => Some(url),
        }
    }

    /// Warns if the file of a feed is missing. Another program may write the file later.
    fn warn_of_missing_list(&mut self, key: &str, url: Option<&FeedLocation>) {
        let Some(FeedLocation::File(path)) = url else { return };
        if !path.exists() {
            let problem = "expected a file, but found none; riskgate reads it once it is there";
            let text = self.texts_of(key).next().unwrap_or_default();
            let hint = match is_url_without_scheme(&text) {
                true => Some("write https:// before it, if it is a URL".to_owned()),
                false => hint_for_unopened(path),
            };
            self.warn_at_value(key, problem, hint);
        }
    }

    fn read_feed_kind(&mut self, entry_key: &str, default_tier: &'static str) -> FeedKind {
        // The first choice is the default.
        let mut tiers = ["a", "b", "c", "d"];
        tiers.sort_by_key(|tier| *tier != default_tier);
        match self.read_choice(&format!("{entry_key}.kind"), &["disposable", "alias", "free"]) {
            "alias" => {
                self.refuse_tier(entry_key);
                FeedKind::Alias
            }
            "free" => {
                self.refuse_tier(entry_key);
                FeedKind::Free
            }
            _ => {
                FeedKind::Disposable(match self.read_choice(&format!("{entry_key}.tier"), &tiers) {
                    "a" => FeedTier::A,
                    "b" => FeedTier::B,
                    "d" => FeedTier::D,
                    _ => FeedTier::C,
                })
            }
        }
    }
}

impl Settings {
    /// Reports the tier of a feed whose kind has no tiers.
    fn refuse_tier(&mut self, entry_key: &str) {
        let key = format!("{entry_key}.tier");
        if self.parse_setting(&key, "a tier", |_| Some(())).is_some() {
            let problem =
                "expected a tier only beside kind = \"disposable\", but found another kind";
            let fault = self.begin_fault_at_value(&key).with_problem(problem);
            self.faults.push(fault.with_hint(Some("remove this line".to_owned())));
        }
    }
}

/// Whether a text begins with the name of a host and a path.
fn is_url_without_scheme(text: &str) -> bool {
    let host = text.split_once('/').map_or("", |(host, _)| host);
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let last_label = host.rsplit_once('.').map_or("", |(_, last)| last);
    let is_top_level = last_label.len() > 1 && last_label.chars().all(|c| c.is_ascii_alphabetic());
    is_top_level && host.chars().all(is_of_name) && !host.starts_with('.')
}

/// Returns what to write for a feed without a URL whose name riskgate does not know.
fn hint_for_missing_url(name: &str) -> String {
    let known: Vec<&str> = KNOWN_FEEDS.iter().map(|it| it.name).collect();
    match find_nearest_name(name, known.iter().copied()) {
        Some(near) => format!("did you mean name = \"{near}\"?"),
        None => {
            let known = known.join(" and ");
            format!("write url = \"https://…\"; without one, riskgate knows {known}")
        }
    }
}
