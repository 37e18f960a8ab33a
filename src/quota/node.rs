//! One process run as the store knows it: its leases, the reports that it owes the store, and the
//! store's health as this node sees it.
//!
//! Never waits and does no I/O: callers pass the uptime in milliseconds and the store's replies.
//! The ledger waits for results, and the worker exchanges reports and grants with the store; the
//! simulation in `tests/simulation` does both.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use dashmap::DashMap;

use super::account_faults::AccountFaults;
use super::calendar::Calendar;
use super::charge::FailurePolicy;
use super::lease::Lease;
use super::lease_report::ReportReason;
use super::sync::lock_ignoring_poison;
use super::unsettled_calls::UnsettledCalls;
use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::{LeaseReport, Probe, ReportOutcome, StoreError};

/// The most counts of usage by day that one batch of reports carries, so that a server applies the
/// batch in a few milliseconds. After a data loss, a node has all counts of three days to report.
const MAX_BATCH_COUNTS: usize = 2_000;
/// Failures in a row after which the store counts as down: one slow commit is not an outage.
const FAILURES_UNTIL_DOWN: u32 = 3;

pub(super) struct Node {
    /// 128 random bits, drawn at each start. Two nodes with the same id could admit more calls than
    /// the limit, because the store would take the reports of one for repeats of the other's.
    pub id: [u8; 16],
    pub calendar: Calendar,
    pub leases: DashMap<String, Arc<Lease>>,
    pub health: StoreHealth,
    pub account_faults: AccountFaults,
    lease_queue: Mutex<LeaseQueue>,
    /// A queued lease needs calls at once, so the worker must not wait to gather more leases.
    pub has_urgent_request: AtomicBool,
    pub worker_wakeup: Condvar,
    fails_closed: AtomicBool,
    pub(super) unsettled_calls: UnsettledCalls,
}

#[derive(Default)]
pub(super) struct LeaseQueue {
    pub waiting_leases: Vec<Arc<Lease>>,
    pub is_ledger_closing: bool,
    /// Whether the worker probes the store and tells it the time now, and not at the next tick.
    pub is_tick_requested: bool,
}

#[derive(Default)]
pub(super) struct StoreHealth {
    pub is_down: AtomicBool,
    failures_in_a_row: AtomicU32,
    /// The latest error; `None` once an operation has succeeded again.
    last_error: Mutex<Option<String>>,
    /// The last batch of reports failed. Probes may succeed even so: a server may be full.
    have_last_reports_failed: AtomicBool,
    /// A probe failed, and riskgate has read nothing from the store since.
    pub is_unreadable: AtomicBool,
    /// How many replicas lack the latest report.
    pub missing_replicas: AtomicU64,
    /// Uptime in ms at which the running store operation began; 0 if none is running.
    pub operation_began_ms: AtomicU64,
    /// Uptime in ms until which the store recovers from a data loss, for all accounts.
    recovering_until_ms: AtomicU64,
    pub committed_batches: AtomicU64,
    pub failed_operations: AtomicU64,
}

/// Reports of several leases for the store.
#[derive(Default)]
pub(super) struct ReportBatch {
    /// The leases that get the grants, in the order of `reports`. Each has the sequence of its
    /// report about the current month, if there is one, and the months of its final reports.
    grant_recipients: Vec<(Arc<Lease>, Option<u64>, Vec<Month>)>,
    pub reports: Vec<LeaseReport>,
    /// The leases of which the batch leaves out counts.
    pub leases_with_more_counts: Vec<Arc<Lease>>,
}

impl Node {
    pub(super) fn new(
        id: [u8; 16],
        calendar: Calendar,
        on_failure: FailurePolicy,
        max_unsettled: u64,
    ) -> Node {
        Node {
            id,
            calendar,
            leases: DashMap::new(),
            health: StoreHealth::default(),
            account_faults: AccountFaults::default(),
            lease_queue: Mutex::default(),
            has_urgent_request: AtomicBool::new(false),
            worker_wakeup: Condvar::new(),
            fails_closed: AtomicBool::new(on_failure == FailurePolicy::Closed),
            unsettled_calls: UnsettledCalls::new(max_unsettled),
        }
    }

    /// Returns the account's lease with this limit. Creates the lease if this node has none; if the
    /// limit changed, the calls held go back to the store.
    pub(super) fn open_lease(&self, account: &str, limit: MonthlyLimit) -> Arc<Lease> {
        let lease = match self.leases.get(account) {
            Some(lease) => Arc::clone(&lease),
            None => Arc::clone(
                &self
                    .leases
                    .entry(account.to_owned())
                    .or_insert_with(|| Arc::new(Lease::new(account, limit))),
            ),
        };
        if lease.set_limit(limit) {
            self.enqueue_urgently(&lease);
        }
        lease
    }

    pub(super) fn set_on_failure(&self, on_failure: FailurePolicy) {
        self.fails_closed.store(on_failure == FailurePolicy::Closed, Ordering::Relaxed);
    }

    // --- reports and grants ---

    pub(super) fn lock_lease_queue(&self) -> std::sync::MutexGuard<'_, LeaseQueue> {
        lock_ignoring_poison(&self.lease_queue)
    }

    pub(super) fn enqueue_urgently(&self, lease: &Arc<Lease>) {
        self.enqueue(lease, true);
    }

    pub(super) fn enqueue(&self, lease: &Arc<Lease>, urgent: bool) {
        let is_new = lease.mark_in_lease_queue();
        let is_urgent = || urgent && !self.has_urgent_request.load(Ordering::Relaxed);
        // Plain loads first: a call that changes nothing takes no lock.
        if !is_new && !is_urgent() {
            return;
        }
        let mut queue = self.lock_lease_queue();
        let is_urgent = is_urgent();
        let must_wake = queue.waiting_leases.is_empty() || is_urgent;
        if is_new {
            queue.waiting_leases.push(Arc::clone(lease));
        }
        if is_urgent {
            self.has_urgent_request.store(true, Ordering::Relaxed);
        }
        drop(queue);
        // The first queued lease wakes the worker, and the first urgent one wakes it again.
        if must_wake {
            self.worker_wakeup.notify_one();
        }
    }

    /// Puts leases back into the queue because their reports were not sent. Wakes their waiting
    /// calls, which then check whether the store counts as down.
    pub(super) fn requeue(&self, unsent_leases: Vec<Arc<Lease>>) {
        unsent_leases.iter().for_each(|lease| lease.wake_waiters());
        self.lock_lease_queue().waiting_leases.extend(unsent_leases);
    }

    /// Collects the reports of these leases, with at most [`MAX_BATCH_COUNTS`] counts. Each lease
    /// has a share of them, and what the leases before it have left. No total is left out because
    /// of the counts. A store that recovers acknowledges no counts, so it gets none.
    pub(super) fn collect_reports(
        &self,
        leases: &[Arc<Lease>],
        reason: ReportReason,
        uptime_ms: u64,
    ) -> ReportBatch {
        let mut batch = ReportBatch::default();
        let is_recovering = self.is_recovering_from_data_loss(uptime_ms);
        let batch_counts = if is_recovering { 0 } else { MAX_BATCH_COUNTS };
        let mut sent_counts = 0;
        for (at, lease) in leases.iter().enumerate() {
            let max_counts = (batch_counts * (at + 1) / leases.len()).saturating_sub(sent_counts);
            if reason == ReportReason::CallsNeeded {
                // A request for calls that comes later queues the lease again.
                lease.unmark_in_lease_queue();
            }
            let latest_month = self.calendar.latest_month();
            let outgoing = lease.prepare_reports(reason, latest_month, max_counts);
            if outgoing.has_more_counts {
                batch.leases_with_more_counts.push(Arc::clone(lease));
            }
            let report = outgoing.current_month_report.as_ref();
            sent_counts += report.map_or(0, |report| report.usage.len());
            let sequence = report.map(|report| report.sequence);
            let months =
                outgoing.final_reports.iter().map(|final_report| final_report.month).collect();
            batch.reports.extend(outgoing.current_month_report);
            batch.reports.extend(outgoing.final_reports);
            batch.grant_recipients.push((Arc::clone(lease), sequence, months));
        }
        batch
    }

    /// Delivers the outcomes of the reports to the leases; `outcomes` is `None` if the store did
    /// not answer.
    pub(super) fn deliver_grants(
        &self,
        batch: ReportBatch,
        outcomes: Option<Vec<ReportOutcome>>,
        uptime_ms: u64,
    ) {
        let answered = outcomes.is_some();
        let outcomes = outcomes.unwrap_or_default().into_iter().zip(&batch.reports);
        let keep_valid_grant =
            |(outcome, report)| self.account_faults.keep_valid_grant(report, outcome, uptime_ms);
        let mut grants = outcomes.map(keep_valid_grant);
        for (lease, sequence, months) in batch.grant_recipients {
            let has_reports = sequence.is_some() || !months.is_empty();
            let (mut settled, mut failed) = (0, false);
            if let Some(sequence) = sequence {
                match grants.next().flatten() {
                    Some(grant) => settled += lease.apply_grant(sequence, grant, uptime_ms),
                    None => {
                        failed = true;
                        lease.mark_report_unanswered(answered, uptime_ms);
                    }
                }
            }
            for month in months {
                match grants.next().flatten() {
                    Some(_) => settled += lease.confirm_final_report(month),
                    None => failed = true,
                }
            }
            self.unsettled_calls.subtract(settled, lease.fails_alone());
            if answered && has_reports {
                lease.set_fails_alone(failed, &self.unsettled_calls);
            }
            lease.wake_waiters();
        }
    }

    /// Records how long the store still recovers. If the store was restarted, replaced or emptied
    /// since `previous_probe`, returns the leases that have totals to report again.
    pub(super) fn apply_probe(
        &self,
        previous_probe: Option<&Probe>,
        probe: &Probe,
        uptime_ms: u64,
    ) -> Vec<Arc<Lease>> {
        let recovery_ms = probe.recovery_left.as_millis() as u64;
        let until = if recovery_ms > 0 { uptime_ms + recovery_ms } else { 0 };
        self.health.recovering_until_ms.store(until, Ordering::Relaxed);
        if previous_probe.is_none_or(|before| before.incarnation == probe.incarnation) {
            return Vec::new();
        }
        log::warn!(
            "the store was restarted, replaced or emptied: all nodes report their totals again"
        );
        let leases = self.leases.iter().map(|entry| Arc::clone(entry.value()));
        leases.filter(|lease| lease.mark_totals_unreported()).collect()
    }

    // --- health ---

    pub(super) fn is_store_down(&self) -> bool {
        self.health.is_down.load(Ordering::Relaxed)
    }

    /// The latest error if the store counts as down, else `None`.
    pub(super) fn store_problem(&self) -> Option<String> {
        lock_ignoring_poison(&self.health.last_error).clone().filter(|_| self.is_store_down())
    }

    pub(super) fn is_recovering_from_data_loss(&self, uptime_ms: u64) -> bool {
        uptime_ms < self.health.recovering_until_ms.load(Ordering::Relaxed)
    }

    /// Milliseconds until the store grants calls again after a data loss.
    pub(super) fn store_recovery_ms_left(&self, uptime_ms: u64) -> u64 {
        self.health.recovering_until_ms.load(Ordering::Relaxed).saturating_sub(uptime_ms)
    }

    pub(super) fn record_report_outcome(&self, error: Option<&StoreError>) {
        let error = error.map(|error| error as &dyn Display);
        self.health.have_last_reports_failed.store(error.is_some(), Ordering::Relaxed);
        self.health.committed_batches.fetch_add(u64::from(error.is_none()), Ordering::Relaxed);
        self.record_operation_outcome(error);
    }

    pub(super) fn fails_closed(&self) -> bool {
        self.fails_closed.load(Ordering::Relaxed)
    }

    pub(super) fn record_missing_replicas(&self, missing: usize) {
        let before = self.health.missing_replicas.swap(missing as u64, Ordering::Relaxed);
        match (before, missing) {
            (0, 1..) => log::error!("{missing} of store.wait_replicas lack the latest report"),
            (1.., 0) => log::warn!(
                "store.wait_replicas have the latest report, or the store is unreachable"
            ),
            _ => {}
        }
    }

    /// Records the outcome of a probe. While reports fail, a probe that succeeds does not end an
    /// outage.
    pub(super) fn record_probe_outcome(&self, error: Option<&StoreError>) {
        let error = error.map(|error| error as &dyn Display);
        self.health.is_unreadable.store(error.is_some(), Ordering::Relaxed);
        if error.is_some() || !self.health.have_last_reports_failed.load(Ordering::Relaxed) {
            self.record_operation_outcome(error);
        }
    }

    /// Records that the store was read since the last probe failed. That ends no outage, because a
    /// read proves nothing about writes.
    pub(super) fn record_read(&self) {
        self.health.is_unreadable.store(false, Ordering::Relaxed);
    }

    /// Records that the store can be read, and refuses writes.
    pub(super) fn record_write_refusal(&self, refusal: &str) {
        self.health.is_unreadable.store(false, Ordering::Relaxed);
        self.record_operation_outcome(Some(&refusal));
    }

    fn record_operation_outcome(&self, error: Option<&dyn Display>) {
        let health = &self.health;
        let Some(error) = error else {
            if health.failures_in_a_row.swap(0, Ordering::Relaxed) > 0 {
                *lock_ignoring_poison(&health.last_error) = None;
            }
            if health.is_down.swap(false, Ordering::Relaxed) {
                log::warn!("the store answers again");
            }
            return;
        };
        *lock_ignoring_poison(&health.last_error) = Some(error.to_string());
        health.failed_operations.fetch_add(1, Ordering::Relaxed);
        let failures = health.failures_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        if failures == 1 {
            log::warn!("{error}");
        }
        if failures >= FAILURES_UNTIL_DOWN && !health.is_down.swap(true, Ordering::Relaxed) {
            log::error!("the store counts as down: {error}");
        }
    }
}
