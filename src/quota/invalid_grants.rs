//! Grants that break a rule of the ledger: they are dropped and logged.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::{Grant, LeaseReport, check_grant};

/// The interval between two warnings, in milliseconds: every call may lead to such a grant.
const WARN_INTERVAL_MS: u64 = 60_000;

#[derive(Default)]
pub(super) struct InvalidGrants {
    /// Uptime from which the next warning may be logged.
    next_warning_at: AtomicU64,
}

impl InvalidGrants {
    /// Returns the grant if it keeps the rules. If not, the fault concerns this account alone: the
    /// report counts as unanswered, and `on_failure` decides about the calls of the account.
    pub(super) fn check(
        &self,
        report: &LeaseReport,
        grant: Option<Grant>,
        uptime_ms: u64,
    ) -> Option<Grant> {
        let grant = grant?;
        let Err(error) = check_grant(report, &grant) else { return Some(grant) };
        if uptime_ms >= self.next_warning_at.load(Ordering::Relaxed) {
            self.next_warning_at.store(uptime_ms + WARN_INTERVAL_MS, Ordering::Relaxed);
            log::error!("{error}");
        }
        None
    }
}
