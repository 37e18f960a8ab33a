//! How a feed stands, and when it is due.

use std::path::Path;
use std::time::Duration;

use super::config::{Feed, Feeds};
use super::kept::{self, FeedState};
use crate::model::month::rfc3339;

/// How many times its interval a feed may be silent before that is told.
const SILENT_INTERVALS: u32 = 3;

/// A feed is never called silent before this time, however short its interval.
const SILENT_AT_LEAST: Duration = Duration::from_hours(1);

/// The last time that a feed was tried.
#[derive(Clone, Copy, Debug)]
pub struct LastTry {
    /// When, in seconds since 1970.
    pub at: i64,
    /// Whether nothing could be kept.
    pub has_failed: bool,
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
    /// How each feed stands at a moment, in seconds since 1970. Reads the folder.
    pub fn status(&self, now: i64) -> Vec<FeedStatus> {
        self.all.iter().map(|feed| feed.status(&self.folder, now)).collect()
    }
}

impl Feed {
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
