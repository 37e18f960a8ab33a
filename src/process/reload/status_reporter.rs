//! How each part stands: told once, shown, and counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::dns::DnsStatus;
use crate::feed::FeedStatus;
use crate::gate::GateState;

/// What stands between what is there and what serves.
#[derive(Clone, Debug, Default)]
pub struct ReloadStatus {
    /// Parts that serve their last good state, and why.
    pub failing: BTreeMap<&'static str, String>,
    /// Changed settings that take a restart.
    pub needs_restart: Vec<&'static str>,
    /// How each feed stands.
    pub feeds: Vec<FeedStatus>,
    /// How the DNS is learned from.
    pub dns: DnsStatus,
}

/// Where parts say how they stand.
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

    pub(super) fn set_needs_restart(&self, settings: Vec<&'static str>) {
        self.lock().needs_restart = settings;
    }

    /// Keeps how feeds stand.
    pub(super) fn set_feeds(&self, feeds: Vec<FeedStatus>) {
        self.lock().feeds = feeds;
    }

    /// Keeps how the DNS is learned from.
    pub(super) fn set_dns(&self, dns: DnsStatus) {
        self.lock().dns = dns;
    }

    /// Keeps how a part stands, tells it once, and counts it.
    pub(super) fn record(&self, part: &'static str, problem: Option<&str>, is_counted: bool) {
        let before = match problem {
            Some(problem) => self.lock().failing.insert(part, problem.to_owned()),
            None => self.lock().failing.remove(part),
        };
        let is_news = before.as_deref() != problem;
        if is_counted || (is_news && part == "keys") {
            self.state.metrics.reloads.count_reload(part, problem.is_none());
        }
        let state_text = match part {
            "keys" if self.state.keys.peek().is_none() => "has nothing to serve yet",
            "keys" => "is degraded",
            _ => "keeps its last good state",
        };
        for line in problem.filter(|_| is_news).unwrap_or_default().lines() {
            log::error!("{part} {state_text}: {line}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReloadStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
