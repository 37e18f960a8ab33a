//! The lease of one account in memory: a purse to spend from, and the books behind it.
//!
//! Owns who waits for a call, in order, and the marks by which the worker finds it. Spending
//! touches the purse alone; whoever changes the books holds their lock.

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

/// "Exhausted" is remembered this long, in milliseconds; then the store is asked again, since
/// another node may have given calls back.
const REFUSED_FOR: u64 = 500;
/// A store that settles after a loss, or that failed for this account alone, is asked again after
/// this many milliseconds.
const SETTLING_FOR: u64 = 250;

/// What one account may spend here, and how it stands with the store.
pub struct Lease {
    account: String,
    hot: HotState,
    /// [`Ledger`](super::ledger::Ledger) clock until which the month counts as spent.
    exhausted_until: AtomicU64,
    /// Clock until which the store grants this account nothing.
    recovering_until: AtomicU64,
    is_queued: AtomicBool,
    is_active: AtomicBool,
    reply_notify: Notify,
    /// Who waits for a call, in order: without it, those who come late take what the first waits
    /// for.
    wait_queue: Semaphore,
    accounting: Mutex<LeaseAccounting>,
}

/// All that a call touches while the lease lasts, in one line of the cache.
#[repr(align(64))]
struct HotState {
    purse: AtomicLease,
    /// What was beyond all leases a moment ago: the purse says by how much that has changed.
    unleased: AtomicU64,
    /// From how many calls in hand on more are asked for.
    refill_at: AtomicU64,
    is_unlimited: AtomicBool,
    /// What is held lasts for long enough that a wish for more may wait for others.
    refill_can_wait: AtomicBool,
    /// Who waits for a call.
    waiters: AtomicU32,
}

/// Whether more should be asked for, so that no call has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefillUrgency {
    NotNeeded,
    /// Along with what others ask for.
    CanWait,
    Urgent,
}

/// A call that was spent. Whoever holds it can give it back to the lease that it came from, once.
#[derive(Debug)]
pub struct Charge {
    month: Month,
    epoch: u16,
    pub(super) is_unbacked: bool,
    /// What remains of the month's limit after this call; `None` when unlimited.
    pub remaining: Option<u64>,
}

impl Charge {
    /// The month that the call belongs to.
    pub fn month(&self) -> Month {
        self.month
    }
}

/// A place in the line of those who wait for a call; left when dropped.
pub(super) struct WaitTicket<'l> {
    lease: &'l Lease,
}

impl<'l> WaitTicket<'l> {
    /// Waits until all who came before have gone; first is who holds the result.
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
                purse: AtomicLease::new(),
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

    /// Whose calls these are.
    pub fn account(&self) -> &str {
        &self.account
    }

    fn numbers(&self) -> MutexGuard<'_, LeaseAccounting> {
        lock(&self.accounting)
    }

    // --- spending ---

    /// Spends one call in hand: one compare-and-swap, no lock, no allocation. Says too whether
    /// more should be asked for.
    pub(super) fn try_spend(&self, month: Month) -> Option<(Charge, RefillUrgency)> {
        let word = self.hot.purse.spend_one(u64::from(month.number()))?;
        let need = match word.held() <= self.hot.refill_at.load(Ordering::Relaxed) {
            false => RefillUrgency::NotNeeded,
            true if self.hot.refill_can_wait.load(Ordering::Relaxed) => RefillUrgency::CanWait,
            true => RefillUrgency::Urgent,
        };
        let beyond = word.unleased_near(self.hot.unleased.load(Ordering::Relaxed));
        let remaining = word.held().saturating_add(beyond);
        let spent = Charge {
            month: match word.month() == u64::from(month.number()) {
                true => month,
                // The month turned since the request came.
                false => Month::from_number(word.month() as u16)?,
            },
            epoch: word.epoch() as u16,
            is_unbacked: false,
            remaining: (!self.hot.is_unlimited.load(Ordering::Relaxed)).then_some(remaining),
        };
        Some((spent, need))
    }

    /// Admits a call without the store's word. Refused only when what is known for certain has
    /// reached the limit already.
    pub(super) fn spend_unbacked(&self, month: Month) -> Option<Charge> {
        let mut numbers = self.numbers();
        if numbers.month < month.number() {
            self.exhausted_until.store(0, Ordering::Release);
        }
        let remaining = numbers.spend_unbacked(&self.hot.purse, month)?;
        let epoch = self.hot.purse.load().epoch() as u16;
        let month = Month::from_number(numbers.month)?;
        Some(Charge { month, epoch, is_unbacked: true, remaining })
    }

    /// Takes a call back, into the purse that it came from or for the store.
    pub(super) fn refund(&self, spent: &Charge) -> Refund {
        let epoch = u64::from(spent.epoch);
        let returned = self.numbers().refund(&self.hot.purse, spent.month, epoch);
        if returned == Refund::Reusable {
            // Whoever waits can have it.
            self.wake_waiters();
        }
        returned
    }

    /// Takes a blind call back, unless the store may know of it already.
    pub(super) fn refund_unbacked(&self, spent: &Charge) -> bool {
        self.numbers().refund_unbacked(spent.month)
    }

    // --- who waits, and what the worker knows it by ---

    pub(super) fn mark_queued(&self) -> bool {
        // Looked at first: a call that finds it queued already changes nothing.
        !self.is_queued.load(Ordering::Relaxed) && !self.is_queued.swap(true, Ordering::AcqRel)
    }

    pub(super) fn unmark_queued(&self) {
        self.is_queued.store(false, Ordering::Release);
    }

    /// Whether the worker did not look after it yet; from now on it does.
    pub(super) fn mark_active(&self) -> bool {
        !self.is_active.swap(true, Ordering::AcqRel)
    }

    pub(super) fn unmark_active(&self) {
        self.is_active.store(false, Ordering::Release);
    }

    /// Whether somebody waits for a call of this account.
    pub(super) fn has_waiters(&self) -> bool {
        self.hot.waiters.load(Ordering::Relaxed) > 0
    }

    /// A place in the line of those who wait.
    pub(super) fn join_wait_queue(&self) -> WaitTicket<'_> {
        self.hot.waiters.fetch_add(1, Ordering::Relaxed);
        WaitTicket { lease: self }
    }

    pub(super) fn replied(&self) -> Notified<'_> {
        self.reply_notify.notified()
    }

    pub(super) fn wake_waiters(&self) {
        self.reply_notify.notify_waiters();
    }

    // --- the books ---

    pub(super) fn request_calls(&self, month: Month) {
        self.numbers().request_calls(month);
    }

    /// Whether the month was found spent a moment ago.
    pub(super) fn is_exhausted(&self, month: Month, clock: u64) -> bool {
        clock < self.exhausted_until.load(Ordering::Acquire)
            && self.numbers().month >= month.number()
    }

    /// Whether the store said a moment ago that it grants nothing, since it lost something.
    pub(super) fn is_recovering(&self, clock: u64) -> bool {
        clock < self.recovering_until.load(Ordering::Acquire)
    }

    /// Sets the limit in force; true if it changed, and then nothing held remains spendable.
    pub(super) fn set_limit(&self, limit: MonthlyLimit) -> bool {
        let mut numbers = self.numbers();
        if numbers.limit == calls_allowed(limit) {
            return false;
        }
        numbers.set_limit(&self.hot.purse, calls_allowed(limit));
        self.hot.is_unlimited.store(limit == MonthlyLimit::Unlimited, Ordering::Relaxed);
        self.exhausted_until.store(0, Ordering::Release);
        true
    }

    /// What this node has spent of the month.
    pub(super) fn own_spent(&self, month: Month) -> u64 {
        let numbers = self.numbers();
        if numbers.month == month.number() { numbers.spent(&self.hot.purse) } else { 0 }
    }

    /// What other nodes had spent when the store last spoke of this month, or was last read.
    pub(super) fn others_spent(&self, month: Month) -> Option<u64> {
        let numbers = self.numbers();
        let stated = (numbers.month == month.number()).then(|| numbers.others_spent()).flatten();
        stated.max(numbers.others_spent_read.filter(|read| read.0 == month).map(|read| read.1))
    }

    /// Remembers what other nodes had spent when the store was read.
    pub(super) fn record_others_spent(&self, month: Month, spent: u64) {
        self.numbers().others_spent_read = Some((month, spent));
    }

    /// What to say to the store now; at most one statement is under way.
    pub(super) fn prepare_reports(&self, occasion: ReportReason, latest: Month) -> Outgoing {
        let mut numbers = self.numbers();
        let month = numbers.month;
        let outgoing = numbers.say(&self.hot.purse, &self.account, occasion, latest);
        if numbers.month != month {
            self.exhausted_until.store(0, Ordering::Release);
        }
        outgoing
    }

    /// Takes the store's reply to the latest statement; returns how many blind calls it settled.
    pub(super) fn apply_grant(&self, sequence: u64, standing: Grant, clock: u64) -> u64 {
        let publish_unleased = |beyond| self.hot.unleased.store(beyond, Ordering::Relaxed);
        let outcome = self.numbers().reply(&self.hot.purse, sequence, standing, publish_unleased);
        let Some(outcome) = outcome else { return 0 };
        self.hot.refill_at.store(outcome.low, Ordering::Relaxed);
        self.hot.refill_can_wait.store(outcome.lasts, Ordering::Relaxed);
        let until = |holds: bool, time: u64| if holds { clock + time } else { 0 };
        self.exhausted_until.store(until(outcome.is_exhausted, REFUSED_FOR), Ordering::Release);
        self.recovering_until.store(until(outcome.is_recovering, SETTLING_FOR), Ordering::Release);
        outcome.settled_calls
    }

    /// Nothing was heard. If the store answered others, something is wrong with this account's
    /// numbers there: asking at once would only be asking often.
    pub(super) fn mark_unanswered(&self, others_were_answered: bool, clock: u64) {
        self.numbers().mark_unanswered();
        if others_were_answered {
            self.recovering_until.store(clock + SETTLING_FOR, Ordering::Release);
        }
    }

    pub(super) fn mark_for_full_report(&self) -> bool {
        self.numbers().restate()
    }

    pub(super) fn confirm_final_report(&self, month: Month) -> u64 {
        self.numbers().confirm_final_report(month)
    }

    #[cfg(test)]
    pub(super) fn exposure(&self) -> (u16, u64, [Option<u64>; 2], u64) {
        let numbers = self.numbers();
        let (held, limits, row) = numbers.exposure(&self.hot.purse);
        (numbers.month, held, limits, row)
    }

    #[cfg(test)]
    pub(super) fn with_accounting<R>(
        &self,
        act: impl FnOnce(&mut LeaseAccounting, &AtomicLease) -> R,
    ) -> R {
        act(&mut self.numbers(), &self.hot.purse)
    }

    #[cfg(test)]
    pub(super) fn known_totals(&self, month: Month) -> (u64, u64) {
        let numbers = self.numbers();
        if numbers.month == month.number() { numbers.claimed_totals() } else { (0, 0) }
    }

    /// Whether nothing remains to be told to the store.
    pub(super) fn is_fully_reported(&self) -> bool {
        self.numbers().is_fully_reported(&self.hot.purse)
    }
}
