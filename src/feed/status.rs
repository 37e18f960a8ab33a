//! The status of a feed, and when it is due.

use std::path::Path;
use std::time::Duration;

use super::config::{Feed, Feeds};
use super::storage::{self, FeedState};
use crate::model::month::format_rfc3339;

/// If no fetch succeeds for this many intervals, the status reports a problem.
const REPORT_STALE_AFTER_INTERVALS: u32 = 3;

/// The status reports missing fetches only after at least this time since the last one, even if
/// the intervals are shorter.
const MIN_DELAY_OF_STALE_REPORT: Duration = Duration::from_hours(1);

/// The last attempt to fetch a feed.
#[derive(Clone, Copy, Debug)]
pub struct LastAttempt {
    /// When the attempt was made, in seconds since 1970.
    pub at: i64,
    /// Whether the attempt failed.
    pub has_failed: bool,
}

/// The status of a feed.
#[derive(Clone, Debug)]
pub struct FeedStatus {
    /// The feed's name.
    pub name: String,
    /// The URL of its list, without a password.
    pub url: String,
    /// The state of its list.
    pub state: FeedState,
    /// A problem that the operator should know about: a damaged or missing list, the last fault, no
    /// successful fetch for a long time, or a list that no longer changes.
    pub problem: Option<String>,
}

impl FeedStatus {
    /// The status as JSON, with times in RFC 3339.
    pub fn to_json(&self) -> serde_json::Value {
        let FeedState { attempted_at, fetched_at, changed_at, rows, kept, .. } = &self.state;
        let time = |at: &Option<i64>| at.map(format_rfc3339);
        serde_json::json!({
            "name": self.name,
            "url": self.url,
            "rows": rows,
            "kept": kept,
            "attempted_at": time(attempted_at),
            "fetched_at": time(fetched_at),
            "changed_at": time(changed_at),
            "problem": self.problem,
        })
    }
}

impl Feeds {
    /// The status of each feed. Reads the directory. `now` is in seconds since 1970.
    pub fn read_status(&self, now: i64) -> Vec<FeedStatus> {
        self.feeds.iter().map(|feed| feed.read_status(&self.dir, now)).collect()
    }

    /// The faults of lists that were fetched and are now missing or damaged. Reads the directory.
    pub fn find_list_faults(&self) -> Vec<String> {
        let find_fault = |feed: &Feed| {
            let fault = feed.find_list_fault(&self.dir, &feed.read_state(&self.dir))?;
            Some(format!("feed {}: {fault}", feed.name))
        };
        self.feeds.iter().filter_map(find_fault).collect()
    }
}

impl Feed {
    /// The feed's status. `now` is in seconds since 1970.
    pub fn read_status(&self, folder: &Path, now: i64) -> FeedStatus {
        let state = self.read_state(folder);
        let problem = self.describe_problem(folder, &state, now);
        FeedStatus { name: self.name.clone(), url: self.url.to_string(), state, problem }
    }

    /// The problem of a [`FeedStatus`], if there is one.
    fn describe_problem(&self, folder: &Path, state: &FeedState, now: i64) -> Option<String> {
        let if_older_than = |at: Option<i64>, age: Duration| {
            at.filter(|at| now.saturating_sub(*at) > age.as_secs().cast_signed())
        };
        let damage = self.find_list_fault(folder, state);
        let damage = damage.map(|damage| format!("{}: {damage}", self.name));
        let fault = damage.or_else(|| state.fault.clone()).map(|fault| format!("feed {fault}"));
        let stale_after =
            (self.fetch_interval * REPORT_STALE_AFTER_INTERVALS).max(MIN_DELAY_OF_STALE_REPORT);
        if let Some(since) = if_older_than(state.fetched_at, stale_after) {
            let last = fault.unwrap_or_else(|| "no attempt was made".to_owned());
            return Some(format!(
                "feed {}: not fetched since {}: {last}",
                self.name,
                format_rfc3339(since)
            ));
        }
        let unchanged = || {
            let since = if_older_than(state.changed_at, self.max_unchanged_age)?;
            Some(format!("feed {}: unchanged since {}", self.name, format_rfc3339(since)))
        };
        fault.or_else(unchanged)
    }

    /// Reads when riskgate last tried to fetch the feed with its present URL, digest URL, key and
    /// kind. `None` if the directory has no record of such an attempt.
    pub fn read_last_attempt(&self, folder: &Path) -> Option<LastAttempt> {
        let state = self.read_state(folder);
        // After a change of these settings, riskgate fetches the list immediately.
        let is_of_source = self.has_source_digest(state.last_attempted_digest());
        let at = state.attempted_at.filter(|_| is_of_source)?;
        Some(LastAttempt { at, has_failed: state.fault.is_some() })
    }

    /// Whether the list on disk is damaged or missing, so that it should be fetched again.
    pub fn has_damaged_list(&self, folder: &Path) -> bool {
        self.find_list_fault(folder, &self.read_state(folder)).is_some()
    }

    /// The fault of the list on disk. A missing list is a fault only if one was fetched from the
    /// present source.
    fn find_list_fault(&self, folder: &Path, state: &FeedState) -> Option<String> {
        let is_expected =
            state.fetched_at.is_some() && self.has_source_digest(&state.source_digest);
        storage::find_list_fault(state, &self.list_path(folder), &self.verified_list, is_expected)
    }

    /// When the feed is due after this attempt, in seconds since 1970. After a failure riskgate
    /// waits a tenth of the interval: at least 1 s, at most 600 s.
    pub fn next_fetch_due_at(&self, last: &LastAttempt) -> i64 {
        let interval = self.fetch_interval.as_secs().cast_signed();
        let wait = if last.has_failed { (interval / 10).clamp(1, 600) } else { interval };
        last.at.saturating_add(wait)
    }
}
