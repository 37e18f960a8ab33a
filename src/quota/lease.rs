//! The lease of one account in memory, and the numbers behind it.
//!
//! Owns the one word that a call is spent from, and what this node has told the store and
//! believes of it. At every moment: what the node has spent or may spend ≤ its row in the store.
//! It does no I/O; the worker carries its statements to the store and the replies back.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::lock;
use super::word::{Word, bound};
use crate::month::Month;
use crate::store::{LimitRow, Standing, Statement};

/// A lease is not asked for in smaller parts, as far as the bound allows.
const LEAST_WISHED: u64 = 8;
/// "Exhausted" is remembered this long, in milliseconds; then the store is asked again, since
/// another node may have given calls back.
const REFUSED_FOR: u64 = 500;

/// What one account may spend here, and how it stands with the store.
pub struct Lease {
    account: String,
    /// [`Word`]: spending a call is one compare-and-swap of it.
    word: AtomicU64,
    /// From how many remaining calls on more are asked for.
    low: AtomicU64,
    /// [`Ledger`](super::Ledger) clock until which the month counts as spent; 0 when it does not.
    refused_until: AtomicU64,
    unlimited: AtomicBool,
    queued: AtomicBool,
    active: AtomicBool,
    replied: Notify,
    /// Who waits for a call, in order: without it, those who come late take what the first waits
    /// for.
    line: Semaphore,
    waiting: AtomicU32,
    numbers: Mutex<Numbers>,
}

/// A call that was spent, and where it came from.
pub struct Spent {
    lease: Arc<Lease>,
    month: Month,
    epoch: u64,
    blind: bool,
    /// What remains of the month's limit after this call; `None` when unlimited.
    pub remaining: Option<u64>,
}

#[derive(Default)]
struct Numbers {
    /// The month that all of this is about; 0 before the first call.
    month: u16,
    /// The month that a waiting call asks for.
    asked_month: u16,
    limit: Option<u64>,
    sequence: u64,
    /// This node's row as the latest reply gave it.
    leased: u64,
    /// Taken out of `held` to be given back; nothing of it is spent again.
    out: u64,
    /// Admitted while the store was down, not yet in `leased`.
    blind: u64,
    others_leased: u64,
    others_spent: u64,
    /// The store has spoken of this month.
    heard: bool,
    /// What the store last heard of `spent`.
    stated_spent: Option<u64>,
    pending: Option<Pending>,
    farewells: Vec<Farewell>,
    spent_at_tick: u64,
    calls_since_reply: u64,
    spent_at_reply: u64,
}

/// The last word on a month that is over, until the store has taken it.
#[derive(Clone, Copy)]
struct Farewell {
    month: Month,
    spent: u64,
    blind: u64,
}

/// The statement whose reply is awaited.
#[derive(Clone, Copy)]
struct Pending {
    month: u16,
    sequence: u64,
    floor: u64,
    out: u64,
    blind: u64,
    asked: u64,
    limit: Option<u64>,
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
        self.lease.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a lease has to say to the store.
pub(super) struct Saying {
    /// The statement about the running month, if there is one to make.
    pub statement: Option<Statement>,
    /// Final statements about past months.
    pub farewells: Vec<Statement>,
}

/// Why the worker looks at a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// It was queued.
    Wanted,
    /// A second has passed.
    Tick,
    /// The process ends.
    Close,
}

fn calls(limit: LimitRow) -> Option<u64> {
    match limit {
        LimitRow::Calls(calls) => Some(calls),
        LimitRow::Unlimited => None,
    }
}

impl Lease {
    pub(super) fn new(account: &str, limit: LimitRow) -> Lease {
        let numbers = Numbers { limit: calls(limit), ..Numbers::default() };
        Lease {
            account: account.to_owned(),
            word: AtomicU64::new(0),
            low: AtomicU64::new(0),
            refused_until: AtomicU64::new(0),
            unlimited: AtomicBool::new(limit == LimitRow::Unlimited),
            queued: AtomicBool::new(false),
            active: AtomicBool::new(false),
            replied: Notify::new(),
            line: Semaphore::new(1),
            waiting: AtomicU32::new(0),
            numbers: Mutex::new(numbers),
        }
    }

    /// Whose calls these are.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Spends one call: one compare-and-swap, no lock, no allocation.
    pub(super) fn take(self: &Arc<Lease>, month: Month) -> Option<Spent> {
        let mut seen = self.word.load(Ordering::Acquire);
        loop {
            let word = Word(seen);
            if word.held() == 0 || word.month() != u64::from(month.number()) {
                return None;
            }
            let next = seen - Word::HELD_ONE;
            match self.word.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let after = Word(next);
                    let remaining = after.held() + after.beyond();
                    return Some(Spent {
                        lease: Arc::clone(self),
                        month,
                        epoch: after.epoch(),
                        blind: false,
                        remaining: (!self.unlimited.load(Ordering::Relaxed)).then_some(remaining),
                    });
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Admits a call while the store is down. Refused only when what is known for certain has
    /// reached the limit already.
    pub(super) fn take_blindly(self: &Arc<Lease>, month: Month) -> Option<Spent> {
        let mut numbers = lock(&self.numbers);
        self.enter(&mut numbers, month);
        let known = numbers.leased - numbers.out + numbers.blind + numbers.others_leased;
        if numbers.limit.is_some_and(|limit| known >= limit) {
            return None;
        }
        numbers.blind += 1;
        let remaining = numbers.limit.map(|limit| limit - known - 1);
        let epoch = Word(self.word.load(Ordering::Acquire)).epoch();
        Some(Spent { lease: Arc::clone(self), month, epoch, blind: true, remaining })
    }

    /// Whether more should be asked for now, so that no call has to wait.
    pub(super) fn is_low(&self) -> bool {
        let low = self.low.load(Ordering::Relaxed);
        Word(self.word.load(Ordering::Relaxed)).held() <= low
    }

    pub(super) fn mark_queued(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
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

    pub(super) fn ask_for(&self, month: Month) {
        let mut numbers = lock(&self.numbers);
        numbers.asked_month = numbers.asked_month.max(month.number());
    }

    /// Whether somebody waits for a call of this account.
    pub(super) fn has_line(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// A place in the line of those who wait.
    pub(super) fn stand_in_line(&self) -> Place<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Place { lease: self }
    }

    pub(super) fn replied(&self) -> Notified<'_> {
        self.replied.notified()
    }

    pub(super) fn wake(&self) {
        self.replied.notify_waiters();
    }

    /// Whether the month was found spent a moment ago.
    pub(super) fn is_refused(&self, month: Month, clock: u64) -> bool {
        if clock >= self.refused_until.load(Ordering::Acquire) {
            return false;
        }
        lock(&self.numbers).month == month.number()
    }

    /// Sets the limit in force; true if it changed, and then nothing held remains spendable.
    pub(super) fn set_limit(&self, limit: LimitRow) -> bool {
        let mut numbers = lock(&self.numbers);
        if numbers.limit == calls(limit) {
            return false;
        }
        numbers.limit = calls(limit);
        self.unlimited.store(limit == LimitRow::Unlimited, Ordering::Relaxed);
        self.refused_until.store(0, Ordering::Release);
        self.take_out(&mut numbers, 0, true);
        true
    }

    /// What this node has spent of the month.
    pub(super) fn own_spent(&self, month: Month) -> u64 {
        let numbers = lock(&self.numbers);
        if numbers.month == month.number() { self.spent(&numbers) } else { 0 }
    }

    /// What other nodes had spent when the store last spoke of this month.
    pub(super) fn others_spent(&self, month: Month) -> Option<u64> {
        let numbers = lock(&self.numbers);
        (numbers.month == month.number() && numbers.heard).then_some(numbers.others_spent)
    }

    fn spent(&self, numbers: &Numbers) -> u64 {
        let held = Word(self.word.load(Ordering::Acquire)).held();
        numbers.leased - numbers.out - held + numbers.blind
    }

    /// Takes all but `keep` out of the word, to be given back. With `void`, calls spent before
    /// can no longer be given back to it.
    fn take_out(&self, numbers: &mut Numbers, keep: u64, void: bool) {
        let mut taken = 0;
        let update = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| {
            let word = Word(seen);
            taken = word.held().saturating_sub(keep);
            let epoch = word.epoch() + u64::from(void);
            Some(Word::new(word.month(), epoch, word.held() - taken, word.beyond() + taken).0)
        });
        debug_assert!(update.is_ok());
        numbers.out += taken;
    }

    /// Makes `month` the running one, if it is later than the one that is.
    fn enter(&self, numbers: &mut Numbers, month: Month) {
        if month.number() <= numbers.month {
            return;
        }
        self.take_out(numbers, 0, true);
        let spent = self.spent(numbers);
        if let (Some(past), true) = (Month::from_number(numbers.month), numbers.leased + spent > 0)
        {
            let blind = numbers.blind;
            numbers.farewells.push(Farewell { month: past, spent, blind });
        }
        let epoch = Word(self.word.load(Ordering::Acquire)).epoch() + 1;
        let beyond = numbers.limit.unwrap_or(u64::MAX);
        *numbers = Numbers {
            month: month.number(),
            asked_month: month.number(),
            limit: numbers.limit,
            sequence: numbers.sequence,
            farewells: std::mem::take(&mut numbers.farewells),
            ..Numbers::default()
        };
        let word = Word::new(u64::from(month.number()), epoch, 0, beyond);
        self.word.store(word.0, Ordering::Release);
        self.refused_until.store(0, Ordering::Release);
    }

    /// What to say to the store now; at most one statement is under way.
    pub(super) fn statement(&self, occasion: Occasion) -> Saying {
        let mut numbers = lock(&self.numbers);
        if let Some(month) = Month::from_number(numbers.asked_month) {
            self.enter(&mut numbers, month);
        }
        let farewells = self.farewells(&mut numbers);
        let statement = match Month::from_number(numbers.month).filter(|m| m.number() != 0) {
            Some(month) => self.running_statement(&mut numbers, month, occasion),
            None => None,
        };
        Saying { statement, farewells }
    }

    fn running_statement(
        &self,
        numbers: &mut Numbers,
        month: Month,
        occasion: Occasion,
    ) -> Option<Statement> {
        let by_all = numbers.leased - numbers.out + numbers.blind + numbers.others_leased;
        let bound = bound(numbers.limit, by_all);
        let mut spent = self.spent(numbers);
        let idle = occasion == Occasion::Tick && spent == numbers.spent_at_tick;
        if occasion == Occasion::Tick {
            numbers.spent_at_tick = spent;
        }
        if occasion == Occasion::Close || idle {
            self.take_out(numbers, 0, false);
        } else {
            self.take_out(numbers, bound, false);
        }
        spent = self.spent(numbers);
        let held = Word(self.word.load(Ordering::Acquire)).held();
        let asked = match occasion {
            Occasion::Wanted => self.to_ask(numbers, bound, held, spent),
            Occasion::Tick | Occasion::Close => 0,
        };
        let nothing_new = numbers.stated_spent == Some(spent) && numbers.out == 0;
        if asked == 0 && nothing_new {
            return None;
        }
        let floor = numbers.leased - numbers.out + numbers.blind;
        numbers.sequence += 1;
        numbers.pending = Some(Pending {
            month: numbers.month,
            sequence: numbers.sequence,
            floor,
            out: numbers.out,
            blind: numbers.blind,
            asked,
            limit: numbers.limit,
        });
        numbers.stated_spent = Some(spent);
        Some(Statement {
            account: self.account.clone(),
            month,
            sequence: numbers.sequence,
            target: floor + asked,
            floor,
            spent,
            limit: numbers.limit,
        })
    }

    /// Grows with the rate of calls: twice what went since the last reply, a few at least, within
    /// the bound.
    fn to_ask(&self, numbers: &mut Numbers, bound: u64, held: u64, spent: u64) -> u64 {
        numbers.calls_since_reply = spent.saturating_sub(numbers.spent_at_reply);
        let wished = (2 * numbers.calls_since_reply).max(LEAST_WISHED);
        bound.saturating_sub(held).min(wished.saturating_sub(held).max(u64::from(held == 0)))
    }

    fn farewells(&self, numbers: &mut Numbers) -> Vec<Statement> {
        let limit = numbers.limit;
        let mut farewells = Vec::new();
        for Farewell { month, spent, .. } in numbers.farewells.clone() {
            numbers.sequence += 1;
            farewells.push(Statement {
                account: self.account.clone(),
                month,
                sequence: numbers.sequence,
                target: spent,
                floor: spent,
                spent,
                limit,
            });
        }
        farewells
    }

    /// Takes the store's reply to the latest statement; returns how many blind calls it settled.
    pub(super) fn reply(&self, sequence: u64, standing: Standing, clock: u64) -> u64 {
        let mut numbers = lock(&self.numbers);
        let Some(pending) = numbers.pending.take_if(|pending| pending.sequence == sequence) else {
            return 0;
        };
        if pending.month != numbers.month {
            // Its month ended meanwhile; the farewell says and settles it all.
            return 0;
        }
        let grown = standing.own.saturating_sub(pending.floor);
        numbers.leased = standing.own;
        numbers.out -= pending.out;
        numbers.blind -= pending.blind;
        numbers.others_leased = standing.others_leased;
        numbers.others_spent = standing.others_spent;
        numbers.heard = true;
        let limit = numbers.limit;
        let void = pending.limit != limit;
        if void {
            // Granted under a limit that is no longer in force: not spendable.
            numbers.out += grown;
        }
        let by_all = standing.own.saturating_add(standing.others_leased);
        let beyond = limit.map_or(u64::MAX, |limit| limit.saturating_sub(by_all));
        let put = if void { 0 } else { grown };
        let beyond = beyond.saturating_add(numbers.out);
        let mut held = 0;
        let update = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| {
            let word = Word(seen);
            held = word.held() + put;
            Some(Word::new(word.month(), word.epoch(), held, beyond).0)
        });
        debug_assert!(update.is_ok());
        let bound = bound(limit, by_all);
        // Half of a lease left is the moment to ask; of a lease of one there is no half.
        self.low.store(if bound == 1 { 0 } else { bound / 2 }, Ordering::Relaxed);
        numbers.spent_at_reply = self.spent(&numbers);
        let refused = pending.asked > 0 && grown == 0 && held == 0 && !void;
        self.refused_until.store(if refused { clock + REFUSED_FOR } else { 0 }, Ordering::Release);
        pending.blind
    }

    /// The statement's fate is unknown. Nothing changes: the next one names totals again.
    pub(super) fn no_reply(&self) {
        let mut numbers = lock(&self.numbers);
        numbers.pending = None;
        numbers.stated_spent = None;
    }

    /// The store took the last word on `month`; returns how many blind calls that settled.
    pub(super) fn said_farewell(&self, month: Month) -> u64 {
        let mut numbers = lock(&self.numbers);
        let said = numbers.farewells.iter().filter(|farewell| farewell.month == month);
        let settled = said.map(|farewell| farewell.blind).sum();
        numbers.farewells.retain(|farewell| farewell.month != month);
        settled
    }

    /// Whether nothing remains to be told to the store.
    pub(super) fn is_settled(&self) -> bool {
        let numbers = lock(&self.numbers);
        let held = Word(self.word.load(Ordering::Acquire)).held();
        held == 0
            && numbers.out == 0
            && numbers.blind == 0
            && numbers.farewells.is_empty()
            && numbers.stated_spent == Some(self.spent(&numbers))
    }
}

impl Spent {
    /// The month that the call belongs to.
    pub fn month(&self) -> Month {
        self.month
    }

    /// Whether it was admitted while the store was down.
    pub(super) fn is_blind(&self) -> bool {
        self.blind
    }

    /// Takes a blind call back, unless the store may know of it already.
    pub(super) fn take_back_blind(&self) -> bool {
        let mut numbers = lock(&self.lease.numbers);
        let stated = numbers.pending.map_or(0, |pending| pending.blind);
        let ours = numbers.month == self.month.number() && numbers.blind > stated;
        numbers.blind -= u64::from(ours);
        ours
    }

    /// Back into the lease that it came from; `None` if that is closed or full.
    pub(super) fn give_back(self) -> Option<Arc<Lease>> {
        let Spent { lease, month, epoch, .. } = self;
        let returned = lease.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| {
            let word = Word(seen);
            let same = word.month() == u64::from(month.number()) && word.epoch() == epoch;
            (same && word.held() < Word::HELD_MAX).then(|| seen + Word::HELD_ONE)
        });
        returned.ok()?;
        // Whoever waits can have it.
        lease.wake();
        Some(lease)
    }
}
