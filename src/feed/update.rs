//! Feeds: lists of domains that others keep fresh, fetched while riskgate runs.
//!
//! Owns what a feed is and how one is brought up to date: fetch, verify, judge, keep. A list that
//! can't be believed leaves the last good one in place. What a row does to a verdict is decided
//! where the table is built; when a feed is fetched is decided by whoever calls.

mod fetch;
mod judge;
mod kept;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::month::rfc3339;
use crate::table::{FeedKind, FeedList, Table};

use fetch::Fetched;
pub use fetch::{FeedUrl, is_public_key};
pub use kept::FeedState;

/// How many times its interval a feed may be silent before that is told.
const SILENT_INTERVALS: u32 = 3;
/// A feed is never called silent before this time, however short its interval.
const SILENT_AT_LEAST: Duration = Duration::from_hours(1);

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

/// All feeds, and the folder that keeps their last good lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feeds {
    /// The feeds, in the order of the config.
    pub all: Vec<Feed>,
    /// Where their lists and what is known of them are kept.
    pub folder: PathBuf,
}

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    /// A new list of this many rows is kept.
    New(usize),
    /// The list is the one that is kept.
    Unchanged,
}

/// The last time that a feed was tried.
#[derive(Clone, Copy, Debug)]
pub struct LastTry {
    /// When, in seconds since 1970.
    pub at: i64,
    /// Whether nothing could be kept.
    pub has_failed: bool,
}

/// Why a feed keeps its last good list.
#[derive(Debug, thiserror::Error)]
#[error("{at}: {why}")]
pub struct FeedError {
    /// The feed, or the URL.
    at: String,
    why: String,
}

impl FeedError {
    fn new(at: impl Into<String>, why: impl Into<String>) -> FeedError {
        FeedError { at: at.into(), why: why.into() }
    }
}

/// How a feed stands.
#[derive(Clone, Debug)]
pub struct FeedStatus {
    /// Its name.
    pub name: String,
    /// Where its list comes from, without a password.
    pub url: String,
    /// What is known of its list.
    pub state: FeedState,
    /// What an operator should know: the last fault, or that it is silent.
    pub problem: Option<String>,
}

impl FeedStatus {
    /// As JSON, for people and programs; moments in RFC 3339.
    pub fn to_json(&self) -> serde_json::Value {
        let FeedState { tried_at, fetched_at, changed_at, rows, .. } = &self.state;
        let moment = |at: &Option<i64>| at.map(rfc3339);
        serde_json::json!({
            "name": self.name,
            "url": self.url,
            "rows": rows,
            "tried_at": moment(tried_at),
            "fetched_at": moment(fetched_at),
            "changed_at": moment(changed_at),
            "problem": self.problem,
        })
    }
}

impl Feeds {
    /// The lists as the table takes them.
    pub fn lists(&self) -> Vec<FeedList> {
        let list = |feed: &Feed| FeedList {
            name: feed.name.clone(),
            kind: feed.kind,
            path: feed.list_path(&self.folder),
        };
        self.all.iter().map(list).collect()
    }

    /// How each feed stands at a moment, in seconds since 1970. Reads the folder.
    pub fn status(&self, now: i64) -> Vec<FeedStatus> {
        self.all.iter().map(|feed| feed.status(&self.folder, now)).collect()
    }
}

impl Feed {
    /// Fetches the list and keeps it, if it can be believed. `table` knows which names are
    /// protected. With `is_forced` a list is taken however much it changed, also an older one.
    /// Where another process updates the same feed it waits until that is done.
    ///
    /// # Errors
    /// If nothing new could be kept; what was kept before still is. The fault is kept beside it.
    pub fn update(
        &self,
        folder: &Path,
        table: &Table,
        now: i64,
        is_forced: bool,
    ) -> Result<Updated, FeedError> {
        let _lock = kept::lock(folder, &self.name).map_err(|error| self.named(error))?;
        let mut state = self.read_state(folder);
        let is_comparable = !state.reset_if_source_changed(self.source()) && !is_forced;
        state.tried_at = Some(now);
        let updated = self.fetch_and_keep(folder, table, &mut state, now, is_comparable);
        let updated = updated.map_err(|error| self.named(error));
        match &updated {
            Ok(_) => (state.fetched_at, state.fault) = (Some(now), None),
            Err(error) => state.fault = Some(error.to_string()),
        }
        let written = kept::write_state(folder, &self.name, &state);
        updated.and_then(|updated| written.map(|()| updated).map_err(|error| self.named(error)))
    }

    /// The fault with the feed's name at its begin.
    fn named(&self, error: FeedError) -> FeedError {
        match error.at == self.name {
            true => error,
            false => FeedError { at: format!("{}: {}", self.name, error.at), ..error },
        }
    }

    /// What decides where a list comes from and what proves it.
    fn source(&self) -> String {
        let url = |url: &FeedUrl| url.whole();
        let parts = [
            url(&self.url),
            self.sha256_url.as_ref().map(url).unwrap_or_default(),
            self.public_key.clone().unwrap_or_default(),
        ];
        fetch::sha256(parts.join("\n").as_bytes())
    }

    fn fetch_and_keep(
        &self,
        folder: &Path,
        table: &Table,
        state: &mut FeedState,
        now: i64,
        is_comparable: bool,
    ) -> Result<Updated, FeedError> {
        let fetched = match fetch::fetch(&self.url, state, self.max_bytes)? {
            Fetched::Unchanged => return Ok(Updated::Unchanged),
            Fetched::List(fetched) => fetched,
        };
        if let Some(url) = &self.sha256_url {
            fetch::check_digest(url, &fetch::sha256(&fetched.bytes))?;
        }
        if let Some(key) = &self.public_key {
            fetch::check_signature(&self.url, key, &fetched.bytes)?;
        }
        let names = judge::names(&self.name, &fetched.bytes)?;
        // Of the names, so that neither a comment nor their order makes an old list a new one.
        let digest = fetch::sha256(names.join("\n").as_bytes());
        if state.digests.last() == Some(&digest) {
            (state.etag, state.modified) = (fetched.etag, fetched.modified);
            return Ok(Updated::Unchanged);
        }
        if is_comparable && state.digests.contains(&digest) {
            let why = "expected a list that was not there before, but found an older one again";
            return Err(FeedError::new(&self.name, why));
        }
        judge::check_protected_names(self, &names, table)?;
        let list = self.list_path(folder);
        if is_comparable {
            judge::check_changed_share(self, &kept::read_list(&list), &names)?;
        }
        kept::write_list(state, &list, &names)?;
        (state.etag, state.modified) = (fetched.etag, fetched.modified);
        (state.rows, state.changed_at) = (names.len(), Some(now));
        state.remember(digest);
        Ok(Updated::New(names.len()))
    }

    /// How it stands at a moment, in seconds since 1970.
    pub fn status(&self, folder: &Path, now: i64) -> FeedStatus {
        let state = self.read_state(folder);
        let problem = self.problem(folder, &state, now);
        FeedStatus { name: self.name.clone(), url: self.url.to_string(), state, problem }
    }

    /// What an operator should know: the last fault, that no fetch succeeds, or that the list does
    /// not change any more.
    fn problem(&self, folder: &Path, state: &FeedState, now: i64) -> Option<String> {
        let is_over = |at: Option<i64>, most: Duration| {
            at.filter(|at| now.saturating_sub(*at) > most.as_secs().cast_signed())
        };
        let damage = kept::list_fault(state, &self.list_path(folder));
        let damage = damage.map(|damage| format!("{}: {damage}", self.name));
        let fault = damage.or_else(|| state.fault.clone()).map(|fault| format!("feed {fault}"));
        let silent = (self.interval * SILENT_INTERVALS).max(SILENT_AT_LEAST);
        if let Some(since) = is_over(state.fetched_at, silent) {
            let last = fault.unwrap_or_else(|| "nobody tried".to_owned());
            return Some(format!("feed {}: none since {}: {last}", self.name, rfc3339(since)));
        }
        let unchanged = || {
            let since = is_over(state.changed_at, self.max_age)?;
            Some(format!("feed {}: unchanged since {}", self.name, rfc3339(since)))
        };
        fault.or_else(unchanged)
    }

    fn read_state(&self, folder: &Path) -> FeedState {
        kept::read_state(folder, &self.name, &self.list_path(folder))
    }

    /// The file of the last good list. A list of another kind has another file: it must not pass
    /// for one of this kind.
    fn list_path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.{}.txt", self.name, self.kind.word()))
    }

    /// When this source was tried last, as far as the folder knows.
    pub fn last_try(&self, folder: &Path) -> Option<LastTry> {
        let state = self.read_state(folder);
        // A list of another source says nothing of this one.
        let at = state.tried_at.filter(|_| state.source == self.source())?;
        Some(LastTry { at, has_failed: state.fault.is_some() })
    }

    /// Whether the list that is kept is damaged, so that it should be fetched anew.
    pub fn is_damaged(&self, folder: &Path) -> bool {
        kept::list_fault(&self.read_state(folder), &self.list_path(folder)).is_some()
    }

    /// When it is due after such a try, in seconds since 1970; after a fault sooner.
    pub fn due_after(&self, last: &LastTry) -> i64 {
        let interval = self.interval.as_secs().cast_signed();
        let wait = if last.has_failed { (interval / 10).clamp(1, 600) } else { interval };
        last.at.saturating_add(wait)
    }
}
