//! Drops the grants that break a rule of the ledger, and logs the fault at most once a minute.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::{Grant, LeaseReport, check_grant};

/// The shortest time between two log lines, in milliseconds: every call may lead to such a grant.
const LOG_INTERVAL_MS: u64 = 60_000;

#[derive(Default)]
pub(super) struct GrantChecker {
    /// Uptime of the ledger, in milliseconds, from which the next fault may be logged.
    next_log_uptime_ms: AtomicU64,
}

impl GrantChecker {
    /// Returns the grant if it keeps the rules, else `None`. A fault concerns this account alone:
    /// its report counts as unanswered, and `on_failure` decides about its calls.
    pub(super) fn keep_if_valid(
        &self,
        report: &LeaseReport,
        grant: Option<Grant>,
        uptime_ms: u64,
    ) -> Option<Grant> {
        let grant = grant?;
        let Err(error) = check_grant(report, &grant) else { return Some(grant) };
        if uptime_ms >= self.next_log_uptime_ms.load(Ordering::Relaxed) {
            self.next_log_uptime_ms.store(uptime_ms + LOG_INTERVAL_MS, Ordering::Relaxed);
            log::error!("{error}");
        }
        None
    }
}
