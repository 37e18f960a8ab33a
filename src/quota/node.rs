//! One process run as the store knows it: its leases, its health, and what it says when.
//!
//! Decides without waiting and without I/O: time comes in as milliseconds since the start, replies
//! as values. The ledger waits for it, the worker carries its words to the store; a simulation
//! does both.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use dashmap::DashMap;

use super::accounting::Refund;
use super::calendar::Calendar;
use super::charge::{Denial, FailurePolicy};
use super::lease::{Charge, Lease, RefillUrgency};
use super::lease_report::ReportReason;
use super::sync::lock;
use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::{Grant, LeaseReport, Probe, StoreError};

/// Failures in a row after which the store counts as down: one slow commit is not an outage.
const FAILURES_UNTIL_DOWN: u32 = 3;

pub(super) struct Node {
    /// 128 random bits drawn at start, never stored or configured: a shared id would turn
    /// idempotence into over-admission.
    pub id: [u8; 16],
    pub calendar: Calendar,
    pub leases: DashMap<String, Arc<Lease>>,
    pub health: Health,
    queue: Mutex<Queue>,
    /// One of those who want something can't wait for others.
    pub has_urgent: AtomicBool,
    pub worker_wakeup: Condvar,
    fails_closed: AtomicBool,
    /// The most calls that may be admitted blindly and not yet settled.
    max_unsettled: u64,
}

#[derive(Default)]
pub(super) struct Queue {
    pub waiting_leases: Vec<Arc<Lease>>,
    pub is_closing: bool,
}

#[derive(Default)]
pub(super) struct Health {
    pub is_down: AtomicBool,
    failures_in_a_row: AtomicU32,
    /// What went wrong last; none since it answered.
    last_error: Mutex<Option<String>>,
    /// The last statement failed, whatever the pulse says: a server may be read-only or full.
    rejects_reports: AtomicBool,
    /// The last pulse failed: the store is not there for reading either.
    pub is_unreachable: AtomicBool,
    /// How many replicas lack what was last stated.
    pub missing_replicas: AtomicU64,
    /// When the running operation began; 0 when none runs.
    pub operation_began_at: AtomicU64,
    /// Until when all accounts settle after a loss.
    recovering_until: AtomicU64,
    pub commits: AtomicU64,
    pub failures: AtomicU64,
    pub unsettled: AtomicU64,
}

/// What became of a call, so far.
pub(super) enum ChargeProgress {
    Done(Result<Charge, Denial>),
    /// It takes a word from the store, which is asked for one.
    Wait,
}

/// Statements of several leases, and who is to hear the replies.
pub(super) struct Batch {
    leases: Vec<(Arc<Lease>, Option<u64>, Vec<Month>)>,
    pub statements: Vec<LeaseReport>,
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
            health: Health::default(),
            queue: Mutex::default(),
            has_urgent: AtomicBool::new(false),
            worker_wakeup: Condvar::new(),
            fails_closed: AtomicBool::new(on_failure == FailurePolicy::Closed),
            max_unsettled,
        }
    }

    /// The lease of an account, at the limit in force. A changed limit voids what is held.
    pub(super) fn lease(&self, account: &str, limit: MonthlyLimit) -> Arc<Lease> {
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
            self.request_refill(&lease);
        }
        lease
    }

    pub(super) fn set_on_failure(&self, on_failure: FailurePolicy) {
        self.fails_closed.store(on_failure == FailurePolicy::Closed, Ordering::Relaxed);
    }

    // --- calls ---

    /// Spends one call if the lease in hand lasts; never waits.
    pub(super) fn try_charge(&self, lease: &Arc<Lease>, month: Month) -> Option<Charge> {
        let (spent, need) = lease.try_spend(month)?;
        match need {
            RefillUrgency::NotNeeded => {}
            RefillUrgency::CanWait => self.enqueue(lease, false),
            RefillUrgency::Urgent => self.request_refill(lease),
        }
        Some(spent)
    }

    /// Spends one call, refuses it, or asks the store for what that takes.
    pub(super) fn charge(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        uptime_ms: u64,
    ) -> ChargeProgress {
        // The store's clock may have said since that the month of this call has not begun.
        let month = month.min(self.calendar.latest_month());
        if let Some(spent) = self.try_charge(lease, month) {
            return ChargeProgress::Done(Ok(spent));
        }
        if lease.is_exhausted(month, uptime_ms) {
            return ChargeProgress::Done(Err(Denial::Exhausted));
        }
        if self.is_down() || self.is_recovering(uptime_ms) || lease.is_recovering(uptime_ms) {
            return ChargeProgress::Done(self.charge_unbacked(lease, month));
        }
        lease.request_calls(month);
        self.request_refill(lease);
        ChargeProgress::Wait
    }

    /// The deadline has passed: a store that hangs is down, one that is merely slow is not.
    pub(super) fn charge_after_timeout(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        hangs: bool,
    ) -> Result<Charge, Denial> {
        if hangs {
            self.health.is_down.store(true, Ordering::Relaxed);
        }
        match self.is_down() {
            true => self.charge_unbacked(lease, month),
            false => Err(Denial::Store),
        }
    }

    fn charge_unbacked(&self, lease: &Arc<Lease>, month: Month) -> Result<Charge, Denial> {
        // The queue keeps what must be stated once the store is back.
        lease.request_calls(month);
        self.request_refill(lease);
        if self.fails_closed() {
            return Err(Denial::Store);
        }
        let month = month.min(self.calendar.latest_month());
        let unsettled = &self.health.unsettled;
        if unsettled.fetch_add(1, Ordering::Relaxed) >= self.max_unsettled {
            unsettled.fetch_sub(1, Ordering::Relaxed);
            return Err(Denial::Store);
        }
        lease.spend_unbacked(month).ok_or_else(|| {
            unsettled.fetch_sub(1, Ordering::Relaxed);
            Denial::Exhausted
        })
    }

    /// Gives a call back, to the lease that it came from; false if that is closed.
    pub(super) fn refund(&self, lease: &Arc<Lease>, spent: Charge) -> bool {
        if spent.is_unbacked {
            let taken_back = lease.refund_unbacked(&spent);
            self.health.unsettled.fetch_sub(u64::from(taken_back), Ordering::Relaxed);
            return taken_back;
        }
        let returned = lease.refund(&spent);
        if returned != Refund::Stale {
            // The store is to hear of it, also when it heard the last word long ago.
            self.request_refill(lease);
        }
        returned != Refund::Stale
    }

    // --- what the store is told ---

    pub(super) fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    pub(super) fn request_refill(&self, lease: &Arc<Lease>) {
        self.enqueue(lease, true);
    }

    fn enqueue(&self, lease: &Arc<Lease>, pressing: bool) {
        let is_new = lease.mark_queued();
        let is_urgent = || pressing && !self.has_urgent.load(Ordering::Relaxed);
        // Looked at first: a call that changes nothing takes no lock.
        if !is_new && !is_urgent() {
            return;
        }
        let mut queue = self.queue();
        let is_urgent = is_urgent();
        let wakes = queue.waiting_leases.is_empty() || is_urgent;
        if is_new {
            queue.waiting_leases.push(Arc::clone(lease));
        }
        if is_urgent {
            self.has_urgent.store(true, Ordering::Relaxed);
        }
        drop(queue);
        // The first wakes the worker, and the first that can't wait does so again.
        if wakes {
            self.worker_wakeup.notify_one();
        }
    }

    /// Wishes that were taken from the queue and not spoken of go back, and those who wait look
    /// again: the store may count as down by now.
    pub(super) fn requeue(&self, waiting_leases: Vec<Arc<Lease>>) {
        waiting_leases.iter().for_each(|lease| lease.wake_waiters());
        self.queue().waiting_leases.extend(waiting_leases);
    }

    /// What these leases have to say now.
    pub(super) fn collect_reports(&self, leases: &[Arc<Lease>], occasion: ReportReason) -> Batch {
        let mut batch = Batch { leases: Vec::new(), statements: Vec::new() };
        for lease in leases {
            if occasion == ReportReason::CallsNeeded {
                // From here on a new wish queues it again.
                lease.unmark_queued();
            }
            let said = lease.prepare_reports(occasion, self.calendar.latest_month());
            let sequence = said.report.as_ref().map(|statement| statement.sequence);
            let months = said.final_reports.iter().map(|farewell| farewell.month).collect();
            batch.statements.extend(said.report);
            batch.statements.extend(said.final_reports);
            batch.leases.push((Arc::clone(lease), sequence, months));
        }
        batch
    }

    /// Hands the store's words to the leases; `None` when it said nothing at all.
    pub(super) fn deliver_grants(
        &self,
        batch: Batch,
        grants: Option<Vec<Option<Grant>>>,
        uptime_ms: u64,
    ) {
        let answered = grants.is_some();
        let mut grants = grants.unwrap_or_default().into_iter();
        for (lease, sequence, months) in batch.leases {
            let mut settled = 0;
            if let Some(sequence) = sequence {
                match grants.next().flatten() {
                    Some(standing) => settled += lease.apply_grant(sequence, standing, uptime_ms),
                    None => lease.mark_unanswered(answered, uptime_ms),
                }
            }
            for month in months {
                if grants.next().flatten().is_some() {
                    settled += lease.confirm_final_report(month);
                }
            }
            self.health.unsettled.fetch_sub(settled, Ordering::Relaxed);
            lease.wake_waiters();
        }
    }

    /// Takes the store's pulse. After another life of it all leases restate what they know, and
    /// those that have something to say are returned.
    pub(super) fn on_probe(
        &self,
        before: Option<&Probe>,
        pulse: &Probe,
        uptime_ms: u64,
    ) -> Vec<Arc<Lease>> {
        let settle = pulse.recovery_left.as_millis() as u64;
        let until = if settle > 0 { uptime_ms + settle } else { 0 };
        self.health.recovering_until.store(until, Ordering::Relaxed);
        if before.is_none_or(|before| before.incarnation == pulse.incarnation) {
            return Vec::new();
        }
        log::warn!(
            "the store was restarted, replaced or emptied: all nodes report their totals again"
        );
        let leases = self.leases.iter().map(|entry| Arc::clone(entry.value()));
        leases.filter(|lease| lease.mark_for_full_report()).collect()
    }

    // --- health ---

    pub(super) fn is_down(&self) -> bool {
        self.health.is_down.load(Ordering::Relaxed)
    }

    /// Why the store counts as down, if it said anything.
    pub(super) fn store_problem(&self) -> Option<String> {
        lock(&self.health.last_error).clone().filter(|_| self.is_down())
    }

    pub(super) fn is_recovering(&self, uptime_ms: u64) -> bool {
        uptime_ms < self.health.recovering_until.load(Ordering::Relaxed)
    }

    /// For how long all accounts still settle, in milliseconds.
    pub(super) fn recovery_ms_left(&self, uptime_ms: u64) -> u64 {
        self.health.recovering_until.load(Ordering::Relaxed).saturating_sub(uptime_ms)
    }

    /// Takes note of how stating went.
    pub(super) fn record_report_outcome(&self, error: Option<&StoreError>) {
        self.health.rejects_reports.store(error.is_some(), Ordering::Relaxed);
        self.health.commits.fetch_add(u64::from(error.is_none()), Ordering::Relaxed);
        self.record_outcome(error);
    }

    pub(super) fn fails_closed(&self) -> bool {
        self.fails_closed.load(Ordering::Relaxed)
    }

    /// Takes note of how many replicas lack what was last stated.
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

    /// Takes note of how taking the pulse went.
    pub(super) fn record_probe_outcome(&self, error: Option<&StoreError>) {
        self.health.is_unreachable.store(error.is_some(), Ordering::Relaxed);
        if error.is_some() || !self.health.rejects_reports.load(Ordering::Relaxed) {
            self.record_outcome(error);
        }
    }

    fn record_outcome(&self, error: Option<&StoreError>) {
        let health = &self.health;
        let Some(error) = error else {
            if health.failures_in_a_row.swap(0, Ordering::Relaxed) > 0 {
                *lock(&health.last_error) = None;
            }
            if health.is_down.swap(false, Ordering::Relaxed) {
                log::warn!("the store answers again");
            }
            return;
        };
        *lock(&health.last_error) = Some(error.to_string());
        health.failures.fetch_add(1, Ordering::Relaxed);
        let failures = health.failures_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        if failures == 1 {
            log::warn!("{error}");
        }
        if failures >= FAILURES_UNTIL_DOWN && !health.is_down.swap(true, Ordering::Relaxed) {
            log::error!("the store counts as down: {error}");
        }
    }
}
