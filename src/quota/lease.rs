//! The lease of one account in memory: a purse to spend from, and the books behind it.
//!
//! Owns who waits for a call, in order, and the marks by which the worker finds it. Spending
//! touches the purse alone; whoever changes the books holds their lock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::accounting::{Numbers, Returned};
use super::atomic_lease::Purse;
use super::lease_report::{Occasion, Saying};
use super::sync::lock;
use crate::model::month::Month;
use crate::model::monthly_limit::LimitRow;
use crate::store::Standing;

/// "Exhausted" is remembered this long, in milliseconds; then the store is asked again, since
/// another node may have given calls back.
const REFUSED_FOR: u64 = 500;
/// A store that settles after a loss, or that failed for this account alone, is asked again after
/// this many milliseconds.
const SETTLING_FOR: u64 = 250;

/// What one account may spend here, and how it stands with the store.
pub struct Lease {
    account: String,
    hand: Hand,
    /// [`Ledger`](super::ledger::Ledger) clock until which the month counts as spent.
    refused_until: AtomicU64,
    /// Clock until which the store grants this account nothing.
    settling_until: AtomicU64,
    queued: AtomicBool,
    active: AtomicBool,
    replied: Notify,
    /// Who waits for a call, in order: without it, those who come late take what the first waits
    /// for.
    line: Semaphore,
    numbers: Mutex<Numbers>,
}

/// All that a call touches while the lease lasts, in one line of the cache.
#[repr(align(64))]
struct Hand {
    purse: Purse,
    /// What was beyond all leases a moment ago: the purse says by how much that has changed.
    beyond: AtomicU64,
    /// From how many calls in hand on more are asked for.
    low: AtomicU64,
    unlimited: AtomicBool,
    /// What is held lasts for long enough that a wish for more may wait for others.
    lasts: AtomicBool,
    /// Who waits for a call.
    waiting: AtomicU32,
}

/// Whether more should be asked for, so that no call has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// Along with what others ask for.
    Soon,
    Now,
}

/// A call that was spent. Whoever holds it can give it back to the lease that it came from, once.
#[derive(Debug)]
pub struct Spent {
    month: Month,
    epoch: u16,
    pub(super) blind: bool,
    /// What remains of the month's limit after this call; `None` when unlimited.
    pub remaining: Option<u64>,
}

impl Spent {
    /// The month that the call belongs to.
    pub fn month(&self) -> Month {
        self.month
    }
}

/// A place in the line of those who wait for a call; left when dropped.
pub(super) struct Place<'l> {
    lease: &'l Lease,
}

impl<'l> Place<'l> {
    /// Waits until all who came before have gone; first is who holds the result.
    pub(super) async fn first(&self) -> Option<SemaphorePermit<'l>> {
        self.lease.line.acquire().await.ok()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.lease.hand.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn calls(limit: LimitRow) -> Option<u64> {
    match limit {
        LimitRow::Calls(calls) => Some(calls),
        LimitRow::Unlimited => None,
    }
}

impl Lease {
    pub(super) fn new(account: &str, limit: LimitRow) -> Lease {
        Lease {
            account: account.to_owned(),
            hand: Hand {
                purse: Purse::new(),
                beyond: AtomicU64::new(0),
                low: AtomicU64::new(0),
                unlimited: AtomicBool::new(limit == LimitRow::Unlimited),
                lasts: AtomicBool::new(false),
                waiting: AtomicU32::new(0),
            },
            refused_until: AtomicU64::new(0),
            settling_until: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            active: AtomicBool::new(false),
            replied: Notify::new(),
            line: Semaphore::new(1),
            numbers: Mutex::new(Numbers::new(calls(limit))),
        }
    }

    /// Whose calls these are.
    pub fn account(&self) -> &str {
        &self.account
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        lock(&self.numbers)
    }

    // --- spending ---

    /// Spends one call in hand: one compare-and-swap, no lock, no allocation. Says too whether
    /// more should be asked for.
    pub(super) fn take(&self, month: Month) -> Option<(Spent, Need)> {
        let word = self.hand.purse.take(u64::from(month.number()))?;
        let need = match word.held() <= self.hand.low.load(Ordering::Relaxed) {
            false => Need::Nothing,
            true if self.hand.lasts.load(Ordering::Relaxed) => Need::Soon,
            true => Need::Now,
        };
        let beyond = word.beyond_near(self.hand.beyond.load(Ordering::Relaxed));
        let remaining = word.held().saturating_add(beyond);
        let spent = Spent {
            month: match word.month() == u64::from(month.number()) {
                true => month,
                // The month turned since the request came.
                false => Month::from_number(word.month() as u16)?,
            },
            epoch: word.epoch() as u16,
            blind: false,
            remaining: (!self.hand.unlimited.load(Ordering::Relaxed)).then_some(remaining),
        };
        Some((spent, need))
    }

    /// Admits a call without the store's word. Refused only when what is known for certain has
    /// reached the limit already.
    pub(super) fn take_blindly(&self, month: Month) -> Option<Spent> {
        let mut numbers = self.numbers();
        if numbers.month < month.number() {
            self.refused_until.store(0, Ordering::Release);
        }
        let remaining = numbers.spend_blindly(&self.hand.purse, month)?;
        let epoch = self.hand.purse.look().epoch() as u16;
        let month = Month::from_number(numbers.month)?;
        Some(Spent { month, epoch, blind: true, remaining })
    }

    /// Takes a call back, into the purse that it came from or for the store.
    pub(super) fn give_back(&self, spent: &Spent) -> Returned {
        let epoch = u64::from(spent.epoch);
        let returned = self.numbers().give_back(&self.hand.purse, spent.month, epoch);
        if returned == Returned::Whole {
            // Whoever waits can have it.
            self.wake();
        }
        returned
    }

    /// Takes a blind call back, unless the store may know of it already.
    pub(super) fn take_back_blind(&self, spent: &Spent) -> bool {
        self.numbers().take_back_blind(spent.month)
    }

    // --- who waits, and what the worker knows it by ---

    pub(super) fn mark_queued(&self) -> bool {
        // Looked at first: a call that finds it queued already changes nothing.
        !self.queued.load(Ordering::Relaxed) && !self.queued.swap(true, Ordering::AcqRel)
    }

    pub(super) fn unmark_queued(&self) {
        self.queued.store(false, Ordering::Release);
    }

    /// Whether the worker did not look after it yet; from now on it does.
    pub(super) fn mark_active(&self) -> bool {
        !self.active.swap(true, Ordering::AcqRel)
    }

    pub(super) fn unmark_active(&self) {
        self.active.store(false, Ordering::Release);
    }

    /// Whether somebody waits for a call of this account.
    pub(super) fn has_line(&self) -> bool {
        self.hand.waiting.load(Ordering::Relaxed) > 0
    }

    /// A place in the line of those who wait.
    pub(super) fn stand_in_line(&self) -> Place<'_> {
        self.hand.waiting.fetch_add(1, Ordering::Relaxed);
        Place { lease: self }
    }

    pub(super) fn replied(&self) -> Notified<'_> {
        self.replied.notified()
    }

    pub(super) fn wake(&self) {
        self.replied.notify_waiters();
    }

    // --- the books ---

    pub(super) fn ask_for(&self, month: Month) {
        self.numbers().ask_for(month);
    }

    /// Whether the month was found spent a moment ago.
    pub(super) fn is_refused(&self, month: Month, clock: u64) -> bool {
        clock < self.refused_until.load(Ordering::Acquire) && self.numbers().month >= month.number()
    }

    /// Whether the store said a moment ago that it grants nothing, since it lost something.
    pub(super) fn is_settling(&self, clock: u64) -> bool {
        clock < self.settling_until.load(Ordering::Acquire)
    }

    /// Sets the limit in force; true if it changed, and then nothing held remains spendable.
    pub(super) fn set_limit(&self, limit: LimitRow) -> bool {
        let mut numbers = self.numbers();
        if numbers.limit == calls(limit) {
            return false;
        }
        numbers.set_limit(&self.hand.purse, calls(limit));
        self.hand.unlimited.store(limit == LimitRow::Unlimited, Ordering::Relaxed);
        self.refused_until.store(0, Ordering::Release);
        true
    }

    /// What this node has spent of the month.
    pub(super) fn own_spent(&self, month: Month) -> u64 {
        let numbers = self.numbers();
        if numbers.month == month.number() { numbers.spent(&self.hand.purse) } else { 0 }
    }

    /// What other nodes had spent when the store last spoke of this month, or was last read.
    pub(super) fn others_spent(&self, month: Month) -> Option<u64> {
        let numbers = self.numbers();
        let stated = (numbers.month == month.number()).then(|| numbers.others_spent()).flatten();
        stated.max(numbers.others_read.filter(|read| read.0 == month).map(|read| read.1))
    }

    /// Remembers what other nodes had spent when the store was read.
    pub(super) fn note_others_spent(&self, month: Month, spent: u64) {
        self.numbers().others_read = Some((month, spent));
    }

    /// What to say to the store now; at most one statement is under way.
    pub(super) fn say(&self, occasion: Occasion, latest: Month) -> Saying {
        let mut numbers = self.numbers();
        let month = numbers.month;
        let saying = numbers.say(&self.hand.purse, &self.account, occasion, latest);
        if numbers.month != month {
            self.refused_until.store(0, Ordering::Release);
        }
        saying
    }

    /// Takes the store's reply to the latest statement; returns how many blind calls it settled.
    pub(super) fn reply(&self, sequence: u64, standing: Standing, clock: u64) -> u64 {
        let told = |beyond| self.hand.beyond.store(beyond, Ordering::Relaxed);
        let outcome = self.numbers().reply(&self.hand.purse, sequence, standing, told);
        let Some(outcome) = outcome else { return 0 };
        self.hand.low.store(outcome.low, Ordering::Relaxed);
        self.hand.lasts.store(outcome.lasts, Ordering::Relaxed);
        let until = |holds: bool, time: u64| if holds { clock + time } else { 0 };
        self.refused_until.store(until(outcome.refused, REFUSED_FOR), Ordering::Release);
        self.settling_until.store(until(outcome.settling, SETTLING_FOR), Ordering::Release);
        outcome.settled
    }

    /// Nothing was heard. If the store answered others, something is wrong with this account's
    /// numbers there: asking at once would only be asking often.
    pub(super) fn no_reply(&self, others_were_answered: bool, clock: u64) {
        self.numbers().no_reply();
        if others_were_answered {
            self.settling_until.store(clock + SETTLING_FOR, Ordering::Release);
        }
    }

    pub(super) fn restate(&self) -> bool {
        self.numbers().restate()
    }

    pub(super) fn said_farewell(&self, month: Month) -> u64 {
        self.numbers().said_farewell(month)
    }

    #[cfg(test)]
    pub(super) fn stakes(&self) -> (u16, u64, [Option<u64>; 2], u64) {
        let numbers = self.numbers();
        let (held, limits, row) = numbers.stakes(&self.hand.purse);
        (numbers.month, held, limits, row)
    }

    #[cfg(test)]
    pub(super) fn with_accounting<R>(&self, act: impl FnOnce(&mut Numbers, &Purse) -> R) -> R {
        act(&mut self.numbers(), &self.hand.purse)
    }

    #[cfg(test)]
    pub(super) fn known(&self, month: Month) -> (u64, u64) {
        let numbers = self.numbers();
        if numbers.month == month.number() { numbers.knows() } else { (0, 0) }
    }

    /// Whether nothing remains to be told to the store.
    pub(super) fn is_settled(&self) -> bool {
        self.numbers().is_settled(&self.hand.purse)
    }
}
