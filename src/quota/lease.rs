//! The lease of one account in memory: the calls held, the accounting behind them, and the queue of
//! waiting calls.
//!
//! Spending a call touches only the [`AtomicLease`]. Every change of the accounting takes its lock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::accounting::{LeaseAccounting, Refund};
use super::atomic_lease::AtomicLease;
use super::lease_report::{Outgoing, ReportReason};
use super::sync::lock;
use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::Grant;

/// How long a lease counts as exhausted, in milliseconds. Then the store is asked again, because
/// another node may have returned calls.
const EXHAUSTED_RETRY_MS: u64 = 500;
/// How long a lease waits, in milliseconds, before it asks a store again that recovers from a data
/// loss, or that failed for this account alone.
const RECOVERY_RETRY_MS: u64 = 250;

/// The calls that one account may spend on this node.
pub struct Lease {
    account: String,
    hot: HotState,
    /// Uptime of the ledger in milliseconds until which the month counts as exhausted.
    exhausted_until: AtomicU64,
    /// Uptime in milliseconds until which the store grants this account nothing.
    recovering_until: AtomicU64,
    is_queued: AtomicBool,
    is_active: AtomicBool,
    reply_notify: Notify,
    /// Admits waiting calls in the order of their arrival. Without it a late call could take the
    /// lease that an earlier call waits for.
    wait_queue: Semaphore,
    accounting: Mutex<LeaseAccounting>,
}

/// The fields that a charge touches while the lease lasts, in one cache line.
#[repr(align(64))]
struct HotState {
    atomic_lease: AtomicLease,
    /// Calls that no node had leased when the last grant arrived. The change since then is in the
    /// packed lease.
    unleased: AtomicU64,
    /// Request more once this many calls or fewer are held.
    refill_at: AtomicU64,
    is_unlimited: AtomicBool,
    /// The held calls last long enough for the next request to wait and share a commit.
    refill_can_wait: AtomicBool,
    /// How many calls wait for a lease.
    waiters: AtomicU32,
}

/// How urgently the worker should request more calls, so that no call has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefillUrgency {
    NotNeeded,
    /// Together with the requests of other accounts.
    CanWait,
    Urgent,
}

/// A spent call. It can be refunded once, to the lease that it came from.
#[derive(Debug)]
pub struct Charge {
    month: Month,
    epoch: u16,
    pub(super) is_unbacked: bool,
    /// Calls that remain of the month's limit after this call; `None` if unlimited.
    pub remaining: Option<u64>,
}

impl Charge {
    /// The month that the call belongs to.
    pub fn month(&self) -> Month {
        self.month
    }
}

/// A ticket in the wait queue of a lease. Dropping it leaves the queue.
pub(super) struct WaitTicket<'l> {
    lease: &'l Lease,
}

impl<'l> WaitTicket<'l> {
    /// Waits for all earlier calls. The caller is first in the queue while it holds the permit.
    pub(super) async fn wait_for_turn(&self) -> Option<SemaphorePermit<'l>> {
        self.lease.wait_queue.acquire().await.ok()
    }
}

impl Drop for WaitTicket<'_> {
    fn drop(&mut self) {
        self.lease.hot.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

fn calls_allowed(limit: MonthlyLimit) -> Option<u64> {
    match limit {
        MonthlyLimit::Calls(calls) => Some(calls),
        MonthlyLimit::Unlimited => None,
    }
}

impl Lease {
    pub(super) fn new(account: &str, limit: MonthlyLimit) -> Lease {
        Lease {
            account: account.to_owned(),
            hot: HotState {
                atomic_lease: AtomicLease::new(),
                unleased: AtomicU64::new(0),
                refill_at: AtomicU64::new(0),
                is_unlimited: AtomicBool::new(limit == MonthlyLimit::Unlimited),
                refill_can_wait: AtomicBool::new(false),
                waiters: AtomicU32::new(0),
            },
            exhausted_until: AtomicU64::new(0),
            recovering_until: AtomicU64::new(0),
            is_queued: AtomicBool::new(false),
            is_active: AtomicBool::new(false),
            reply_notify: Notify::new(),
            wait_queue: Semaphore::new(1),
            accounting: Mutex::new(LeaseAccounting::new(calls_allowed(limit))),
        }
    }

    /// The name of the account.
    pub fn account(&self) -> &str {
        &self.account
    }

    fn accounting(&self) -> MutexGuard<'_, LeaseAccounting> {
        lock(&self.accounting)
    }

    // --- spending ---

    /// Spends one held call: one compare-and-swap, no lock, no allocation. Also returns whether
    /// more calls should be requested.
    pub(super) fn try_spend(&self, month: Month) -> Option<(Charge, RefillUrgency)> {
        let packed = self.hot.atomic_lease.spend_one(u64::from(month.number()))?;
        let urgency = match packed.held() <= self.hot.refill_at.load(Ordering::Relaxed) {
            false => RefillUrgency::NotNeeded,
            true if self.hot.refill_can_wait.load(Ordering::Relaxed) => RefillUrgency::CanWait,
            true => RefillUrgency::Urgent,
        };
        let unleased = packed.unleased_near(self.hot.unleased.load(Ordering::Relaxed));
        let remaining = packed.held().saturating_add(unleased);
        let charge = Charge {
            month: match packed.month() == u64::from(month.number()) {
                true => month,
                // The next month began after the request arrived.
                false => Month::from_number(packed.month() as u16)?,
            },
            epoch: packed.epoch() as u16,
            is_unbacked: false,
            remaining: (!self.hot.is_unlimited.load(Ordering::Relaxed)).then_some(remaining),
        };
        Some((charge, urgency))
    }

    /// Admits a call that no lease covers. Returns `None` if the known total has reached the limit.
    pub(super) fn spend_unbacked(&self, month: Month) -> Option<Charge> {
        let mut accounting = self.accounting();
        if accounting.month < month.number() {
            self.exhausted_until.store(0, Ordering::Release);
        }
        let remaining = accounting.spend_unbacked(&self.hot.atomic_lease, month)?;
        let epoch = self.hot.atomic_lease.load().epoch() as u16;
        let month = Month::from_number(accounting.month)?;
        Some(Charge { month, epoch, is_unbacked: true, remaining })
    }

    /// Refunds a call: to this lease, or to the store if the lease may hold no more.
    pub(super) fn refund(&self, charge: &Charge) -> Refund {
        let epoch = u64::from(charge.epoch);
        let returned = self.accounting().refund(&self.hot.atomic_lease, charge.month, epoch);
        if returned == Refund::Reusable {
            // A waiting call can take it.
            self.wake_waiters();
        }
        returned
    }

    /// Refunds an unbacked call. Returns false if the call may have been reported to the store
    /// already.
    pub(super) fn refund_unbacked(&self, charge: &Charge) -> bool {
        self.accounting().refund_unbacked(charge.month)
    }

    // --- the wait queue, and the marks by which the worker finds the lease ---

    pub(super) fn mark_queued(&self) -> bool {
        // A plain load first: a call that finds the lease queued writes nothing.
        !self.is_queued.load(Ordering::Relaxed) && !self.is_queued.swap(true, Ordering::AcqRel)
    }

    pub(super) fn unmark_queued(&self) {
        self.is_queued.store(false, Ordering::Release);
    }

    /// Marks the lease as active. Returns true if the worker was not tracking it yet.
    pub(super) fn mark_active(&self) -> bool {
        !self.is_active.swap(true, Ordering::AcqRel)
    }

    pub(super) fn unmark_active(&self) {
        self.is_active.store(false, Ordering::Release);
    }

    /// Returns true if a call of this account is waiting.
    pub(super) fn has_waiters(&self) -> bool {
        self.hot.waiters.load(Ordering::Relaxed) > 0
    }

    pub(super) fn join_wait_queue(&self) -> WaitTicket<'_> {
        self.hot.waiters.fetch_add(1, Ordering::Relaxed);
        WaitTicket { lease: self }
    }

    pub(super) fn reply_notified(&self) -> Notified<'_> {
        self.reply_notify.notified()
    }

    pub(super) fn wake_waiters(&self) {
        self.reply_notify.notify_waiters();
    }

    // --- accounting ---

    pub(super) fn request_calls(&self, month: Month) {
        self.accounting().request_calls(month);
    }

    /// Returns true if the month was found exhausted a moment ago.
    pub(super) fn is_exhausted(&self, month: Month, uptime_ms: u64) -> bool {
        uptime_ms < self.exhausted_until.load(Ordering::Acquire)
            && self.accounting().month >= month.number()
    }

    /// Returns true if the store said a moment ago that it grants nothing because it lost data.
    pub(super) fn is_recovering(&self, uptime_ms: u64) -> bool {
        uptime_ms < self.recovering_until.load(Ordering::Acquire)
    }

    /// Sets the limit in force. Returns true if it changed; then the held calls go back to the
    /// store.
    pub(super) fn set_limit(&self, limit: MonthlyLimit) -> bool {
        let mut accounting = self.accounting();
        if accounting.limit == calls_allowed(limit) {
            return false;
        }
        accounting.set_limit(&self.hot.atomic_lease, calls_allowed(limit));
        self.hot.is_unlimited.store(limit == MonthlyLimit::Unlimited, Ordering::Relaxed);
        self.exhausted_until.store(0, Ordering::Release);
        true
    }

    /// Calls that this node has spent of the month.
    pub(super) fn own_spent(&self, month: Month) -> u64 {
        let accounting = self.accounting();
        if accounting.month == month.number() {
            accounting.spent(&self.hot.atomic_lease)
        } else {
            0
        }
    }

    /// Calls that other nodes had spent of the month, from the latest grant or read; the higher
    /// value counts.
    pub(super) fn others_spent(&self, month: Month) -> Option<u64> {
        let accounting = self.accounting();
        let reported =
            (accounting.month == month.number()).then(|| accounting.others_spent()).flatten();
        reported.max(accounting.others_spent_read.filter(|read| read.0 == month).map(|read| read.1))
    }

    /// Records what other nodes had spent when the store was read.
    pub(super) fn record_others_spent(&self, month: Month, spent: u64) {
        self.accounting().others_spent_read = Some((month, spent));
    }

    /// Builds the reports to send to the store now. At most one report about the current month is
    /// in flight.
    pub(super) fn prepare_reports(&self, reason: ReportReason, latest: Month) -> Outgoing {
        let mut accounting = self.accounting();
        let month = accounting.month;
        let outgoing =
            accounting.prepare_reports(&self.hot.atomic_lease, &self.account, reason, latest);
        if accounting.month != month {
            self.exhausted_until.store(0, Ordering::Release);
        }
        outgoing
    }

    /// Applies the store's grant for the report in flight. Returns how many unbacked calls it
    /// settled.
    pub(super) fn apply_grant(&self, sequence: u64, grant: Grant, uptime_ms: u64) -> u64 {
        let publish_unleased = |unleased| self.hot.unleased.store(unleased, Ordering::Relaxed);
        let outcome = self.accounting().apply_grant(
            &self.hot.atomic_lease,
            sequence,
            grant,
            publish_unleased,
        );
        let Some(outcome) = outcome else { return 0 };
        self.hot.refill_at.store(outcome.refill_at, Ordering::Relaxed);
        self.hot.refill_can_wait.store(outcome.refill_can_wait, Ordering::Relaxed);
        let until = |is_set: bool, ms: u64| if is_set { uptime_ms + ms } else { 0 };
        self.exhausted_until
            .store(until(outcome.is_exhausted, EXHAUSTED_RETRY_MS), Ordering::Release);
        self.recovering_until
            .store(until(outcome.is_recovering, RECOVERY_RETRY_MS), Ordering::Release);
        outcome.settled_calls
    }

    /// The store did not answer the report. If it answered other accounts, it failed for this
    /// account alone; then the lease waits before it asks again.
    pub(super) fn mark_unanswered(&self, others_were_answered: bool, uptime_ms: u64) {
        self.accounting().mark_unanswered();
        if others_were_answered {
            self.recovering_until.store(uptime_ms + RECOVERY_RETRY_MS, Ordering::Release);
        }
    }

    pub(super) fn mark_for_full_report(&self) -> bool {
        self.accounting().mark_for_full_report()
    }

    pub(super) fn confirm_final_report(&self, month: Month) -> u64 {
        self.accounting().confirm_final_report(month)
    }

    #[cfg(test)]
    pub(super) fn exposure(&self) -> (u16, u64, [Option<u64>; 2], u64) {
        let accounting = self.accounting();
        let (held, limits, row) = accounting.exposure(&self.hot.atomic_lease);
        (accounting.month, held, limits, row)
    }

    #[cfg(test)]
    pub(super) fn with_accounting<R>(
        &self,
        act: impl FnOnce(&mut LeaseAccounting, &AtomicLease) -> R,
    ) -> R {
        act(&mut self.accounting(), &self.hot.atomic_lease)
    }

    #[cfg(test)]
    pub(super) fn known_totals(&self, month: Month) -> (u64, u64) {
        let accounting = self.accounting();
        if accounting.month == month.number() { accounting.claimed_totals() } else { (0, 0) }
    }

    /// Returns true if the store knows everything about this lease.
    pub(super) fn is_fully_reported(&self) -> bool {
        self.accounting().is_fully_reported(&self.hot.atomic_lease)
    }
}
