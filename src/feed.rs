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

use crate::month::rfc3339;
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
            path: kept::list_path(&self.folder, &feed.name),
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
        let mut state = kept::read_state(folder, &self.name);
        state.tried_at = Some(now);
        let updated = self.take(folder, table, &mut state, now, is_forced);
        let updated = updated.map_err(|error| match error.at == self.name {
            true => error,
            false => FeedError { at: format!("{}: {}", self.name, error.at), ..error },
        });
        match &updated {
            Ok(_) => (state.fetched_at, state.fault) = (Some(now), None),
            Err(error) => state.fault = Some(error.to_string()),
        }
        let written = kept::write_state(folder, &self.name, &state);
        updated.and_then(|updated| written.map(|()| updated))
    }

    fn take(
        &self,
        folder: &Path,
        table: &Table,
        state: &mut FeedState,
        now: i64,
        is_forced: bool,
    ) -> Result<Updated, FeedError> {
        let fetched = match fetch::fetch(&self.url, state, self.max_bytes)? {
            Fetched::Unchanged => return Ok(Updated::Unchanged),
            Fetched::List(fetched) => fetched,
        };
        let digest = fetch::sha256(&fetched.bytes);
        if let Some(url) = &self.sha256_url {
            fetch::check_digest(url, &digest)?;
        }
        if let Some(key) = &self.public_key {
            fetch::check_signature(&self.url, key, &fetched.bytes)?;
        }
        if state.digests.last() == Some(&digest) {
            (state.etag, state.modified) = (fetched.etag, fetched.modified);
            return Ok(Updated::Unchanged);
        }
        if !is_forced && state.digests.contains(&digest) {
            let why = "expected a list that was not there before, but found an older one again";
            return Err(FeedError::new(&self.name, why));
        }
        let names = judge::names(&self.name, &fetched.bytes)?;
        judge::flags_no_protected_name(self, &names, table, now)?;
        if !is_forced {
            judge::changed_little(self, &kept::read_list(folder, &self.name), &names)?;
        }
        kept::write_list(folder, &self.name, &names)?;
        (state.etag, state.modified) = (fetched.etag, fetched.modified);
        (state.rows, state.changed_at) = (names.len(), Some(now));
        state.remember(digest);
        Ok(Updated::New(names.len()))
    }

    /// How it stands at a moment, in seconds since 1970.
    pub fn status(&self, folder: &Path, now: i64) -> FeedStatus {
        let state = kept::read_state(folder, &self.name);
        let silent = (self.interval * SILENT_INTERVALS).max(SILENT_AT_LEAST);
        let age = state.fetched_at.map(|fetched_at| now.saturating_sub(fetched_at));
        let is_silent = age.is_some_and(|age| age > silent.as_secs().cast_signed());
        let silence = is_silent.then(|| {
            let hours = age.unwrap_or_default() / 3_600;
            format!(
                "feed {}: expected a list every {} s, but found none for {hours} h",
                self.name,
                self.interval.as_secs()
            )
        });
        let fault = state.fault.as_ref().map(|fault| format!("feed {fault}"));
        let (name, url) = (self.name.clone(), self.url.to_string());
        FeedStatus { name, url, state, problem: silence.or(fault) }
    }

    /// The moment at which it should be fetched next, in seconds since 1970; after a fault sooner.
    pub fn due_at(&self, folder: &Path) -> i64 {
        let state = kept::read_state(folder, &self.name);
        let interval = self.interval.as_secs().cast_signed();
        match (state.tried_at, &state.fault) {
            (None, _) => 0,
            (Some(tried_at), None) => tried_at.saturating_add(interval),
            (Some(tried_at), Some(_)) => tried_at.saturating_add((interval / 10).clamp(1, 600)),
        }
    }
}
