//! The lease of one account in memory: the calls held, their accounting, and the queue of waiting
//! calls.
//!
//! Spending a held call changes only the [`AtomicLease`]. Every use of the accounting locks it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::accounting::{LeaseAccounting, RefundOutcome};
use super::atomic_lease::AtomicLease;
use super::charge::{Charge, Denial};
use super::key_usage::{KeyUsage, UsageByKey};
use super::lease_report::{OutgoingReports, ReportReason};
use super::sync::lock_ignoring_poison;
use super::unsettled_calls::UnsettledCalls;
use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::Grant;

/// How long, in milliseconds, a lease counts as exhausted after the store granted nothing. Then the
/// next call asks the store again, because another node may have returned calls.
const EXHAUSTED_RETRY_MS: u64 = 500;
/// If the store recovers from a data loss, or failed for this account alone, calls wait for the
/// store again after this many milliseconds.
const ACCOUNT_OUTAGE_MS: u64 = 250;

/// What this node holds of one account's calls, and what it knows of the account's totals.
pub struct Lease {
    account: String,
    hot: HotState,
    /// Uptime of the ledger in milliseconds until which the lease counts as exhausted.
    exhausted_until_ms: AtomicU64,
    /// Uptime of the ledger in milliseconds until which this account's calls are handled as if the
    /// store were down: while the store recovers, and after it failed for this account alone.
    store_unavailable_until_ms: AtomicU64,
    is_in_lease_queue: AtomicBool,
    is_tracked_by_worker: AtomicBool,
    reply_notify: Notify,
    /// Admits waiting calls in the order of their arrival. Without this queue, a later call could
    /// spend the calls that an earlier one waits for.
    wait_queue: Semaphore,
    accounting: Mutex<LeaseAccounting>,
    usage: UsageByKey,
}

/// The fields that a charge reads or writes while calls are held, in one cache line.
#[derive(Default)]
#[repr(align(64))]
struct HotState {
    atomic_lease: AtomicLease,
    /// Calls that no node had leased when the last grant arrived. The packed lease has the lower 28
    /// bits of the current number; this value restores the upper 36.
    unleased_at_grant: AtomicU64,
    /// More calls are requested once this many or fewer are held.
    refill_threshold: AtomicU64,
    is_unlimited: AtomicBool,
    /// The calls held at the refill threshold last so long that the next request can wait to share
    /// a commit.
    refill_can_wait: AtomicBool,
    /// How many calls are in the wait queue; a batch counts as one.
    waiting_calls: AtomicU32,
}

/// How urgently the worker should request more calls from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefillUrgency {
    NotNeeded,
    /// The request may wait a few milliseconds to share a commit with those of other accounts.
    CanWait,
    Urgent,
}

/// The place of a call in the wait queue of a lease. The call leaves the queue when the ticket is
/// dropped.
pub(super) struct WaitTicket<'l> {
    lease: &'l Lease,
}

impl<'l> WaitTicket<'l> {
    /// Waits until all earlier calls have left the queue. The call is first in the queue while its
    /// caller holds the permit. Never `None`, because the semaphore is never closed.
    pub(super) async fn wait_for_turn(&self) -> Option<SemaphorePermit<'l>> {
        self.lease.wait_queue.acquire().await.ok()
    }
}

impl Drop for WaitTicket<'_> {
    fn drop(&mut self) {
        self.lease.hot.waiting_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease {
    pub(super) fn new(account: &str, limit: MonthlyLimit) -> Lease {
        Lease {
            account: account.to_owned(),
            hot: HotState {
                is_unlimited: AtomicBool::new(limit == MonthlyLimit::Unlimited),
                ..HotState::default()
            },
            exhausted_until_ms: AtomicU64::new(0),
            store_unavailable_until_ms: AtomicU64::new(0),
            is_in_lease_queue: AtomicBool::new(false),
            is_tracked_by_worker: AtomicBool::new(false),
            reply_notify: Notify::new(),
            wait_queue: Semaphore::new(1),
            accounting: Mutex::new(LeaseAccounting::new(limit.calls())),
            usage: UsageByKey::default(),
        }
    }

    /// The name of the account.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Returns the counts of one of the account's keys by day and route.
    pub fn usage_of_key(&self, key_id: &str) -> Arc<KeyUsage> {
        self.usage.find_or_create(key_id)
    }

    pub(super) fn lock_accounting(&self) -> MutexGuard<'_, LeaseAccounting> {
        lock_ignoring_poison(&self.accounting)
    }

    // --- spending ---

    /// Spends held calls, all or none, with a compare-and-swap and no lock. Returns the charge, and
    /// how urgently the worker should request more calls. `None` if fewer calls are held, or if
    /// they are of a month before `month`.
    pub(super) fn try_spend(&self, month: Month, calls: u64) -> Option<(Charge, RefillUrgency)> {
        let packed = self.hot.atomic_lease.spend(u64::from(month.number()), calls)?;
        let urgency = match packed.held() <= self.hot.refill_threshold.load(Ordering::Relaxed) {
            false => RefillUrgency::NotNeeded,
            true if self.hot.refill_can_wait.load(Ordering::Relaxed) => RefillUrgency::CanWait,
            true => RefillUrgency::Urgent,
        };
        let unleased = packed.restore_unleased(self.hot.unleased_at_grant.load(Ordering::Relaxed));
        let remaining = packed.held().saturating_add(unleased);
        let charge = Charge {
            month: match packed.month() == u64::from(month.number()) {
                true => month,
                // The next month began after the request arrived.
                false => Month::from_number(packed.month() as u16)?,
            },
            calls,
            lease_epoch: packed.epoch() as u16,
            is_unbacked: false,
            remaining: (!self.hot.is_unlimited.load(Ordering::Relaxed)).then_some(remaining),
        };
        Some((charge, urgency))
    }

    /// Admits unbacked calls, which no lease covers, all or none. Denies them if too many calls are
    /// unsettled, or if the known total would exceed the limit.
    pub(super) fn spend_unbacked(
        &self,
        month: Month,
        calls: u64,
        unsettled_calls: &UnsettledCalls,
    ) -> Result<Charge, Denial> {
        let mut accounting = self.lock_accounting();
        if accounting.month < month.number() {
            self.exhausted_until_ms.store(0, Ordering::Release);
        }
        if !unsettled_calls.try_add(calls, accounting.unsettled_if_counted_apart()) {
            return Err(Denial::StoreUnavailable);
        }
        let spent = accounting.spend_unbacked(&self.hot.atomic_lease, month, calls);
        let (Some(remaining), Some(month)) = (spent, Month::from_number(accounting.month)) else {
            unsettled_calls.subtract(calls, accounting.fails_alone);
            return Err(Denial::Exhausted);
        };
        let epoch = self.hot.atomic_lease.load().epoch() as u16;
        Ok(Charge { month, calls, lease_epoch: epoch, is_unbacked: true, remaining })
    }

    /// Refunds a charge, unless the refund is [`RefundOutcome::Stale`]: to this lease, or to the
    /// store if this node may not hold the calls.
    pub(super) fn refund(&self, charge: &Charge) -> RefundOutcome {
        let (epoch, lease) = (u64::from(charge.lease_epoch), &self.hot.atomic_lease);
        let outcome = self.lock_accounting().refund(lease, charge.month, epoch, charge.calls);
        if outcome != RefundOutcome::Stale {
            // Calls are left: here, or in the store once they are reported.
            self.exhausted_until_ms.store(0, Ordering::Release);
            self.wake_waiters();
        }
        outcome
    }

    /// Refunds an unbacked charge. Returns false if the month of the charge is over, or if its
    /// calls may be in the report in flight or in an answered report.
    pub(super) fn refund_unbacked(
        &self,
        charge: &Charge,
        unsettled_calls: &UnsettledCalls,
    ) -> bool {
        let mut accounting = self.lock_accounting();
        let refunded = accounting.refund_unbacked(charge.month, charge.calls);
        if refunded {
            unsettled_calls.subtract(charge.calls, accounting.fails_alone);
        }
        refunded
    }

    // --- the wait queue, and the flags by which the worker finds the lease ---

    /// Marks the lease as queued for the worker. Returns true if it was not queued yet.
    pub(super) fn mark_in_lease_queue(&self) -> bool {
        // A plain load first: a call that finds the lease queued writes nothing.
        !self.is_in_lease_queue.load(Ordering::Relaxed)
            && !self.is_in_lease_queue.swap(true, Ordering::AcqRel)
    }

    pub(super) fn unmark_in_lease_queue(&self) {
        self.is_in_lease_queue.store(false, Ordering::Release);
    }

    /// Marks the lease as tracked: the worker asks it for reports every second. Returns true if it
    /// was not tracked yet.
    pub(super) fn mark_tracked_by_worker(&self) -> bool {
        !self.is_tracked_by_worker.swap(true, Ordering::AcqRel)
    }

    pub(super) fn unmark_tracked_by_worker(&self) {
        self.is_tracked_by_worker.store(false, Ordering::Release);
    }

    /// Returns true if a call of this account is waiting.
    pub(super) fn has_waiters(&self) -> bool {
        self.hot.waiting_calls.load(Ordering::Relaxed) > 0
    }

    pub(super) fn enter_wait_queue(&self) -> WaitTicket<'_> {
        self.hot.waiting_calls.fetch_add(1, Ordering::Relaxed);
        WaitTicket { lease: self }
    }

    /// A future that completes when the waiting calls should look at the lease again: the worker
    /// has reported the lease or could not, or a call was refunded.
    pub(super) fn notified_of_reply(&self) -> Notified<'_> {
        self.reply_notify.notified()
    }

    pub(super) fn wake_waiters(&self) {
        self.reply_notify.notify_waiters();
    }

    // --- accounting ---

    /// Returns true if the lease counts as exhausted at this uptime, for `month` or a later month.
    pub(super) fn is_exhausted(&self, month: Month, uptime_ms: u64) -> bool {
        uptime_ms < self.exhausted_until_ms.load(Ordering::Acquire)
            && self.lock_accounting().month >= month.number()
    }

    /// Returns true if, less than a quarter of a second before this uptime, a report showed that
    /// the store recovers from a data loss or fails for this account alone.
    pub(super) fn is_store_unavailable(&self, uptime_ms: u64) -> bool {
        uptime_ms < self.store_unavailable_until_ms.load(Ordering::Acquire)
    }

    /// Sets the limit in force. If the limit changed, withdraws the held calls, which the next
    /// report returns to the store, and returns true.
    pub(super) fn set_limit(&self, limit: MonthlyLimit) -> bool {
        let mut accounting = self.lock_accounting();
        if accounting.limit == limit.calls() {
            return false;
        }
        accounting.set_limit(&self.hot.atomic_lease, limit.calls());
        self.hot.is_unlimited.store(limit == MonthlyLimit::Unlimited, Ordering::Relaxed);
        self.exhausted_until_ms.store(0, Ordering::Release);
        true
    }

    /// The monthly limit in force; `None` if unlimited.
    pub(super) fn limit(&self) -> Option<u64> {
        self.lock_accounting().limit
    }

    /// Calls that this node has spent of the month; 0 if the lease is in another month.
    pub(super) fn own_spent(&self, month: Month) -> u64 {
        let accounting = self.lock_accounting();
        if accounting.month == month.number() {
            accounting.own_spent(&self.hot.atomic_lease)
        } else {
            0
        }
    }

    /// Calls of the month that other nodes had spent, from the latest grant or from the latest read
    /// of usage: the higher number. `None` if there was neither a grant nor a read.
    pub(super) fn others_spent(&self, month: Month) -> Option<u64> {
        let accounting = self.lock_accounting();
        let reported =
            (accounting.month == month.number()).then(|| accounting.others_spent()).flatten();
        reported.max(
            accounting.last_read_of_others_spent.filter(|read| read.0 == month).map(|read| read.1),
        )
    }

    /// Records what other nodes had spent when the store was read.
    pub(super) fn record_others_spent(&self, month: Month, spent: u64) {
        self.lock_accounting().last_read_of_others_spent = Some((month, spent));
    }

    /// Builds the reports to send to the store now: see [`LeaseAccounting::prepare_reports`]. They
    /// carry up to `max_counts` counts of usage by day.
    pub(super) fn prepare_reports(
        &self,
        reason: ReportReason,
        latest_month: Month,
        max_counts: usize,
    ) -> OutgoingReports {
        let (counts, are_all) = self.usage.collect_changes(max_counts);
        let mut accounting = self.lock_accounting();
        if !counts.is_empty() || !are_all {
            // A total that counts as unreported makes a report due at the next tick. The report
            // carries the counts.
            accounting.reported_spent = None;
        }
        let month = accounting.month;
        let mut outgoing =
            accounting.prepare_reports(&self.hot.atomic_lease, &self.account, reason, latest_month);
        outgoing.attach_usage(counts, are_all, &self.usage);
        if accounting.month != month || accounting.calls_to_return > 0 {
            // In the new month, or after these calls are returned, the store has calls to grant.
            self.exhausted_until_ms.store(0, Ordering::Release);
        }
        outgoing
    }

    /// Applies the store's grant for the report in flight. Returns how many unbacked calls it
    /// settled.
    pub(super) fn apply_grant(&self, sequence: u64, grant: Grant, uptime_ms: u64) -> u64 {
        let publish_unleased =
            |unleased| self.hot.unleased_at_grant.store(unleased, Ordering::Relaxed);
        let outcome = self.lock_accounting().apply_grant(
            &self.hot.atomic_lease,
            sequence,
            grant,
            publish_unleased,
        );
        let Some(outcome) = outcome else { return 0 };
        if !outcome.is_recovering {
            // A store that recovers may have lost the counts, so they are then sent again.
            self.usage.confirm_in_flight();
        }
        self.hot.refill_threshold.store(outcome.refill_threshold, Ordering::Relaxed);
        self.hot.refill_can_wait.store(outcome.refill_can_wait, Ordering::Relaxed);
        let until = |is_set: bool, ms: u64| if is_set { uptime_ms + ms } else { 0 };
        self.exhausted_until_ms
            .store(until(outcome.is_exhausted, EXHAUSTED_RETRY_MS), Ordering::Release);
        self.store_unavailable_until_ms
            .store(until(outcome.is_recovering, ACCOUNT_OUTAGE_MS), Ordering::Release);
        outcome.settled_calls
    }

    /// Notes that the report in flight has no valid grant. If the store has answered the batch of
    /// the report, the report failed alone. Then no call of the account waits for the store for
    /// [`ACCOUNT_OUTAGE_MS`].
    pub(super) fn mark_report_unanswered(&self, has_store_answered: bool, uptime_ms: u64) {
        self.lock_accounting().mark_report_unanswered();
        if has_store_answered {
            self.store_unavailable_until_ms.store(uptime_ms + ACCOUNT_OUTAGE_MS, Ordering::Release);
        }
    }

    /// Returns true if, the last time that the store answered, a report of this account failed.
    pub(super) fn fails_alone(&self) -> bool {
        self.lock_accounting().fails_alone
    }

    /// Records whether the reports of this account fail alone. If they do, its unsettled calls
    /// count apart. Only the worker calls this function.
    pub(super) fn set_fails_alone(&self, fails_alone: bool, unsettled_calls: &UnsettledCalls) {
        let mut accounting = self.lock_accounting();
        if accounting.fails_alone != fails_alone {
            accounting.fails_alone = fails_alone;
            unsettled_calls.transfer(accounting.unsettled_of_all_months(), fails_alone);
        }
    }

    pub(super) fn mark_totals_unreported(&self) -> bool {
        self.usage.mark_unreported();
        self.lock_accounting().mark_totals_unreported()
    }

    pub(super) fn confirm_final_report(&self, month: Month) -> u64 {
        self.lock_accounting().confirm_final_report(month)
    }

    /// Changes the accounting and the lease together.
    pub(super) fn change_accounting<R>(
        &self,
        act: impl FnOnce(&mut LeaseAccounting, &AtomicLease) -> R,
    ) -> R {
        act(&mut self.lock_accounting(), &self.hot.atomic_lease)
    }

    /// Returns true if no calls are held and the store has every total.
    pub(super) fn is_fully_reported(&self) -> bool {
        self.lock_accounting().is_fully_reported(&self.hot.atomic_lease)
            && !self.usage.has_changes()
    }
}
