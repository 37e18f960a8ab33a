//! How a feed stands, and when it is due.

use std::path::Path;
use std::time::Duration;

use super::config::{Feed, Feeds};
use super::storage::{self, FeedState};
use crate::model::month::format_rfc3339;

/// How many times its interval a feed may be silent before that is told.
const STALE_AFTER_INTERVALS: u32 = 3;

/// A feed is never called silent before this time, however short its interval.
const MIN_STALE_AFTER: Duration = Duration::from_hours(1);

/// The last time that a feed was tried.
#[derive(Clone, Copy, Debug)]
pub struct LastAttempt {
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
        let FeedState { attempted_at, fetched_at, changed_at, rows, .. } = &self.state;
        let moment = |at: &Option<i64>| at.map(format_rfc3339);
        serde_json::json!({
            "name": self.name,
            "url": self.url,
            "rows": rows,
            "attempted_at": moment(attempted_at),
            "fetched_at": moment(fetched_at),
            "changed_at": moment(changed_at),
            "problem": self.problem,
        })
    }
}

impl Feeds {
    /// How each feed stands at a moment, in seconds since 1970. Reads the directory.
    pub fn status(&self, now: i64) -> Vec<FeedStatus> {
        self.feeds.iter().map(|feed| feed.status(&self.dir, now)).collect()
    }
}

impl Feed {
    /// How it stands at a moment, in seconds since 1970.
    pub fn status(&self, folder: &Path, now: i64) -> FeedStatus {
        let state = self.read_state(folder);
        let problem = self.describe_problem(folder, &state, now);
        FeedStatus { name: self.name.clone(), url: self.url.to_string(), state, problem }
    }

    /// What an operator should know: the last fault, that no fetch succeeds, or that the list does
    /// not change any more.
    fn describe_problem(&self, folder: &Path, state: &FeedState, now: i64) -> Option<String> {
        let if_older_than = |at: Option<i64>, most: Duration| {
            at.filter(|at| now.saturating_sub(*at) > most.as_secs().cast_signed())
        };
        let damage = storage::find_list_fault(state, &self.list_path(folder));
        let damage = damage.map(|damage| format!("{}: {damage}", self.name));
        let fault = damage.or_else(|| state.fault.clone()).map(|fault| format!("feed {fault}"));
        let stale_after = (self.interval * STALE_AFTER_INTERVALS).max(MIN_STALE_AFTER);
        if let Some(since) = if_older_than(state.fetched_at, stale_after) {
            let last = fault.unwrap_or_else(|| "no attempt was made".to_owned());
            return Some(format!(
                "feed {}: not fetched since {}: {last}",
                self.name,
                format_rfc3339(since)
            ));
        }
        let unchanged = || {
            let since = if_older_than(state.changed_at, self.max_age)?;
            Some(format!("feed {}: unchanged since {}", self.name, format_rfc3339(since)))
        };
        fault.or_else(unchanged)
    }

    /// When this source was tried last, as far as the directory knows.
    pub fn last_attempt(&self, folder: &Path) -> Option<LastAttempt> {
        let state = self.read_state(folder);
        // A list of another source says nothing of this one.
        let at = state.attempted_at.filter(|_| state.source_digest == self.source_digest())?;
        Some(LastAttempt { at, has_failed: state.fault.is_some() })
    }

    /// Whether the list that is kept is damaged, so that it should be fetched anew.
    pub fn is_damaged(&self, folder: &Path) -> bool {
        storage::find_list_fault(&self.read_state(folder), &self.list_path(folder)).is_some()
    }

    /// When it is due after such a try, in seconds since 1970; after a fault sooner.
    pub fn next_due_at(&self, last: &LastAttempt) -> i64 {
        let interval = self.interval.as_secs().cast_signed();
        let wait = if last.has_failed { (interval / 10).clamp(1, 600) } else { interval };
        last.at.saturating_add(wait)
    }
}
