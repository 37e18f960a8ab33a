//! Records the problem of each reloadable part: logs its beginning and its end, counts reloads, and
//! publishes the status of all parts.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use crate::dns::DnsStatus;
use crate::feed::FeedStatus;
use crate::gate::GateState;
use crate::support::lock::lock;
use crate::webhook::WebhookStatus;

/// The status of all reloadable parts, for the admin pages.
#[derive(Clone, Debug, Default)]
pub struct ReloadStatus {
    /// The fault of each part that has one. Such a part keeps its last good state, if it has one.
    pub fault_by_part: BTreeMap<&'static str, String>,
    /// Whether the reloader has read the keys of the store at its last attempt.
    pub is_store_read: bool,
    /// Changed settings that take effect at the next restart.
    pub needs_restart: Vec<String>,
    /// The status of each feed.
    pub feeds: Vec<FeedStatus>,
    /// The status of DNS learning.
    pub dns: DnsStatus,
    /// The status of webhooks; `None` if they are off.
    pub webhook: Option<WebhookStatus>,
}

/// Logs, counts and publishes the status of all reloadable parts. Clones share one status.
#[derive(Clone)]
pub(super) struct StatusReporter {
    state: Arc<GateState>,
    status: Arc<Mutex<ReloadStatus>>,
}

impl StatusReporter {
    pub(super) fn new(state: Arc<GateState>) -> StatusReporter {
        StatusReporter { state, status: Arc::default() }
    }

    pub(super) fn status(&self) -> Arc<Mutex<ReloadStatus>> {
        Arc::clone(&self.status)
    }

    /// Changes the status of what is no fault of a part.
    pub(super) fn update(&self, change: impl FnOnce(&mut ReloadStatus)) {
        change(&mut lock(&self.status));
    }

    /// Records whether the threads of a part could be started. `is_pending` tells whether the last
    /// attempt failed, and then whether this one did.
    pub(super) fn record_start(
        &self,
        part: &'static str,
        threads: &str,
        started: io::Result<()>,
        is_pending: &mut bool,
    ) {
        let has_failed_before = std::mem::replace(is_pending, started.is_err());
        match started {
            Ok(()) if has_failed_before => self.record_part(part, None, false),
            Ok(()) => {}
            Err(error) => {
                let problem = format!("expected {threads}, but found {error}");
                self.record_part(part, Some(&problem), false);
            }
        }
    }

    /// Records the problem of a part, or that the part has none.
    ///
    /// Logs a new problem, and the end of a problem. The problem of the feeds has a line for each
    /// feed: of these lines, logs only new ones and those that have ended. Counts a reload of the
    /// part if `is_counted` is true, or if the part is `keys` and its problem has changed. The
    /// metric of failing parts has each part; that of the certificates says only whether the last
    /// ones are in use, because a metric of its own says when they expire.
    pub(super) fn record_part(&self, part: &'static str, problem: Option<&str>, is_counted: bool) {
        let before = match problem {
            Some(problem) => lock(&self.status).fault_by_part.insert(part, problem.to_owned()),
            None => lock(&self.status).fault_by_part.remove(part),
        };
        let is_news = before.as_deref() != problem;
        if is_counted || (is_news && part == "keys") {
            self.state.metrics.reloads.count_reload(part, problem.is_none());
        }
        if part != "certificates" {
            self.state.metrics.reloads.set_failing(part, problem.is_some());
        }
        let state_text = match part {
            "keys" if self.state.keys.peek().is_none() => "has nothing to serve yet",
            "audit" => "is behind",
            "rates" => "are not shared",
            "webhook" => "delivers nothing",
            "config" | "table" => "keeps its last good state",
            // The part may have had no good state yet.
            _ => "is degraded",
        };
        let (before, now) = (before.unwrap_or_default(), problem.unwrap_or_default());
        let is_known = |line: &str, known: &str| {
            part == "feeds" && known.lines().any(|known_line| known_line == line)
        };
        if is_news && now.is_empty() {
            log::info!("{part}: the fault has ended");
        } else if is_news && part == "feeds" {
            for ended in before.lines().filter(|line| !is_known(line, now)) {
                log::info!("{part}: this fault has ended: {ended}");
            }
        }
        for line in now.lines().filter(|line| is_news && !is_known(line, &before)) {
            log::error!("{part} {state_text}: {line}");
        }
    }
}

/// Joins texts, one a line.
pub(super) fn join_lines<T: ToString>(texts: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = texts.into_iter().map(|text| text.to_string()).collect();
    texts.join("\n")
}

/// Joins problems, one a line; `None` if there is none.
pub(super) fn join_problems<T: ToString>(problems: impl IntoIterator<Item = T>) -> Option<String> {
    Some(join_lines(problems)).filter(|text| !text.is_empty())
}
