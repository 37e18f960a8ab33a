//! The books of one account: what this node has told the store, and what it believes of it.
//!
//! At every moment: what the node has spent or may spend ≤ its row in the store. It does no I/O,
//! reads no clock and takes no lock; its lease does, and the worker carries the statements.

use super::atomic_lease::Purse;
use super::packed_lease::bound;
use crate::model::month::Month;
use crate::store::{Known, Standing, Statement};

/// A lease is not smaller than this, as far as the bound allows.
const LEAST_WISHED: u64 = 8;
/// A lease should last for so many seconds at the rate at which calls come, within the bound.
const LASTS: u64 = 4;

/// What is left must last for so many seconds, or more is asked for at once.
const PATIENT: f64 = 0.05;

/// Why the worker looks at a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A call needs more, or will soon.
    Wanted,
    /// A second has passed.
    Tick,
    /// The process ends.
    Close,
}

/// What a lease has to say to the store.
pub(super) struct Saying {
    /// The statement about the running month, if there is one to make.
    pub statement: Option<Statement>,
    /// Final statements about past months.
    pub farewells: Vec<Statement>,
}

/// What became of a call that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// It can be spent again.
    Whole,
    /// No more may be held: the store is to have it.
    Full,
    /// Its month or its lease is over.
    Closed,
}

/// What came of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Calls admitted blindly that the store now knows of.
    pub settled: u64,
    /// Nothing was granted, though it was asked for.
    pub refused: bool,
    /// The store lost something and grants nothing yet.
    pub settling: bool,
    /// From how many calls in hand on more should be asked for.
    pub low: u64,
    /// So many last for longer than [`PATIENT`], at the rate at which calls come.
    pub lasts: bool,
}

#[derive(Default)]
pub(super) struct Numbers {
    /// The month that all of this is about; 0 before the first call.
    pub month: u16,
    /// The month that a waiting call asks for.
    asked_month: u16,
    /// `None` when unlimited.
    pub limit: Option<u64>,
    sequence: u64,
    /// This node's row as the latest reply gave it.
    leased: u64,
    /// Taken out of the purse to be given back; nothing of it is spent again.
    out: u64,
    /// Admitted while the store was down, not yet in `leased`.
    blind: u64,
    others_leased: u64,
    others_spent: u64,
    /// What others had spent of a month when the store was last read for it.
    pub others_read: Option<(Month, u64)>,
    known: Known,
    /// What the store last heard of `spent`.
    stated_spent: Option<u64>,
    pending: Option<Pending>,
    /// Asked for without an answer: it may have been granted.
    unanswered: u64,
    farewells: Vec<Farewell>,
    spent_at_tick: u64,
    /// Calls in the second before the last tick.
    rate: u64,
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
    spent: u64,
    limit: Option<u64>,
}

impl Numbers {
    pub(super) fn new(limit: Option<u64>) -> Numbers {
        Numbers { limit, ..Numbers::default() }
    }

    /// What this node has spent of the running month.
    pub(super) fn spent(&self, purse: &Purse) -> u64 {
        self.leased - self.out - purse.look().held() + self.blind
    }

    /// What other nodes had spent when the store last spoke of this month.
    pub(super) fn others_spent(&self) -> Option<u64> {
        (self.known.sequence > 0).then_some(self.others_spent)
    }

    pub(super) fn ask_for(&mut self, month: Month) {
        self.asked_month = self.asked_month.max(month.number());
    }

    /// Sets another limit: nothing held under the old one remains spendable.
    pub(super) fn set_limit(&mut self, purse: &Purse, limit: Option<u64>) {
        self.limit = limit;
        self.out += purse.take_out(0, true);
    }

    /// Admits one call without the store's word; `None` when what is known for certain has
    /// reached the limit already. Says what remains, as far as is known.
    pub(super) fn spend_blindly(&mut self, purse: &Purse, month: Month) -> Option<Option<u64>> {
        self.enter(purse, month);
        let known = self.by_all();
        if self.limit.is_some_and(|limit| known >= limit) {
            return None;
        }
        self.blind += 1;
        Some(self.limit.map(|limit| limit - known - 1))
    }

    /// Takes a blind call back, unless the store may know of it already.
    pub(super) fn take_back_blind(&mut self, month: Month) -> bool {
        let stated = self.pending.map_or(0, |pending| pending.blind);
        let ours = self.month == month.number() && self.blind > stated;
        self.blind -= u64::from(ours);
        ours
    }

    /// Takes a spent call back: into the purse, or for the store where the purse may not hold
    /// more.
    pub(super) fn give_back(&mut self, purse: &Purse, month: Month, epoch: u64) -> Returned {
        let word = purse.look();
        if self.month != month.number() || word.epoch() != epoch {
            return Returned::Closed;
        }
        if word.held() + self.asked() < bound(self.limit, self.by_all()) {
            purse.put_back();
            return Returned::Whole;
        }
        self.out += 1;
        Returned::Full
    }

    /// What is asked for now, or was and may have been granted.
    fn asked(&self) -> u64 {
        self.unanswered.max(self.pending.map_or(0, |pending| pending.asked))
    }

    /// What all nodes have leased, as far as is known.
    fn by_all(&self) -> u64 {
        self.leased - self.out + self.blind + self.others_leased
    }

    /// Makes `month` the running one, if it is later than the one that is.
    pub(super) fn enter(&mut self, purse: &Purse, month: Month) -> bool {
        if month.number() <= self.month {
            return false;
        }
        let beyond = self.limit.unwrap_or(u64::MAX);
        self.out += purse.enter(u64::from(month.number()), beyond);
        let spent = self.leased - self.out + self.blind;
        let stood = self.leased + self.blind > 0 || self.pending.is_some();
        if let (Some(past), true) = (Month::from_number(self.month), stood) {
            self.farewells.push(Farewell { month: past, spent, blind: self.blind });
        }
        *self = Numbers {
            month: month.number(),
            asked_month: month.number(),
            limit: self.limit,
            sequence: self.sequence,
            others_read: self.others_read,
            farewells: std::mem::take(&mut self.farewells),
            ..Numbers::default()
        };
        true
    }

    /// Leaves a month that has not begun after all: a machine's clock was ahead before the store's
    /// was heard. Calls admitted in it count in the latest month. A month that the store may know
    /// of is kept.
    fn leave_unbegun(&mut self, purse: &Purse, latest: Month) {
        let is_told = self.leased > 0 || self.asked() > 0 || self.pending.is_some();
        if self.month <= latest.number() || is_told || !self.farewells.is_empty() {
            return;
        }
        purse.enter(u64::from(latest.number()), self.limit.unwrap_or(u64::MAX));
        (self.month, self.asked_month) = (latest.number(), latest.number());
    }

    /// What to say to the store now; at most one statement is under way.
    pub(super) fn say(
        &mut self,
        purse: &Purse,
        account: &str,
        occasion: Occasion,
        latest: Month,
    ) -> Saying {
        self.leave_unbegun(purse, latest);
        self.asked_month = self.asked_month.min(latest.number());
        if let Some(month) = Month::from_number(self.asked_month) {
            self.enter(purse, month);
        }
        if self.month > 0 {
            // Also without a call: the last word on a month is not put off.
            self.enter(purse, latest);
        }
        let farewells = self.farewells(account);
        let statement = match Month::from_number(self.month).filter(|month| month.number() != 0) {
            Some(month) => self.statement(purse, account, month, occasion),
            None => None,
        };
        Saying { statement, farewells }
    }

    fn statement(
        &mut self,
        purse: &Purse,
        account: &str,
        month: Month,
        occasion: Occasion,
    ) -> Option<Statement> {
        let bound = bound(self.limit, self.by_all());
        let spent_so_far = self.spent(purse);
        let idle = occasion == Occasion::Tick && spent_so_far == self.spent_at_tick;
        if occasion == Occasion::Tick {
            self.rate = spent_so_far.saturating_sub(self.spent_at_tick);
            self.spent_at_tick = spent_so_far;
        }
        let keep = if occasion == Occasion::Close || idle { 0 } else { bound };
        // Out of memory first, then stated: nothing of it is spent while the store thinks.
        self.out += purse.take_out(keep, false);
        let held = purse.look().held();
        let floor = self.leased - self.out + self.blind;
        let spent = floor - held;
        let asked = match occasion {
            Occasion::Wanted => self.to_ask(bound, held, spent),
            Occasion::Tick | Occasion::Close => 0,
        };
        // What was spent is published every second, and otherwise along with a wish.
        let publishes = occasion != Occasion::Wanted && self.stated_spent != Some(spent);
        if asked == 0 && self.out == 0 && !publishes && !self.owes() {
            return None;
        }
        self.sequence += 1;
        self.pending = Some(Pending {
            month: self.month,
            sequence: self.sequence,
            floor,
            out: self.out,
            blind: self.blind,
            asked,
            spent,
            limit: self.limit,
        });
        self.stated_spent = Some(spent);
        Some(Statement {
            account: account.to_owned(),
            month,
            sequence: self.sequence,
            target: floor + asked,
            floor,
            spent,
            limit: self.limit,
            // Of all, with what was admitted since.
            known: Known {
                leased: floor.saturating_add(self.others_leased),
                spent: spent.saturating_add(self.others_spent),
                ..self.known
            },
        })
    }

    /// The store does not know of calls that were admitted without its word.
    fn owes(&self) -> bool {
        self.blind > 0
    }

    /// A lease grows with the rate of calls, within the bound, and is filled up at half.
    fn to_ask(&self, bound: u64, held: u64, spent: u64) -> u64 {
        let size = (LASTS * self.rate_now(spent)).max(LEAST_WISHED).min(bound);
        if held <= size / 2 { size - held } else { 0 }
    }

    /// Calls in a second: in the last one, or in this one so far if there are more of them already.
    fn rate_now(&self, spent: u64) -> u64 {
        self.rate.max(spent.saturating_sub(self.spent_at_tick))
    }

    fn farewells(&mut self, account: &str) -> Vec<Statement> {
        let (limit, sequence) = (self.limit, &mut self.sequence);
        let say = |&Farewell { month, spent, .. }: &Farewell| {
            *sequence += 1;
            Statement {
                account: account.to_owned(),
                month,
                sequence: *sequence,
                target: spent,
                floor: spent,
                spent,
                limit,
                known: Known::default(),
            }
        };
        self.farewells.iter().map(say).collect()
    }

    /// Takes the store's reply to the latest statement; any other is ignored. `tell_beyond` hears what
    /// lies beyond all leases, before anything can be spent on it.
    pub(super) fn reply(
        &mut self,
        purse: &Purse,
        sequence: u64,
        standing: Standing,
        tell_beyond: impl FnOnce(u64),
    ) -> Option<Outcome> {
        let pending = self.pending.take_if(|pending| pending.sequence == sequence)?;
        if pending.month != self.month {
            // Its month ended meanwhile; the farewell says and settles it all.
            return None;
        }
        if standing.own < pending.floor {
            // What was admitted stands in every store that follows the rule: this word is about
            // something else, and nothing can be counted on it.
            self.no_reply();
            return Some(Outcome { settling: true, ..Outcome::default() });
        }
        let grown = standing.own.saturating_sub(pending.floor);
        self.leased = standing.own;
        self.unanswered = 0;
        self.out -= pending.out;
        self.blind -= pending.blind;
        self.learn(&pending, standing);
        let limit = self.limit;
        let void = pending.limit != limit;
        let by_all = standing.own.saturating_add(self.others_leased);
        let beyond = limit.map_or(u64::MAX, |limit| limit.saturating_sub(by_all));
        // Granted under a limit that is no longer in force, or before calls were admitted of which
        // the store does not know yet: not spendable.
        let room = limit.map_or(u64::MAX, |limit| {
            limit.saturating_sub(by_all - grown).saturating_sub(self.blind)
        });
        let put = if void { 0 } else { grown.min(room) };
        self.out += grown - put;
        let beyond = beyond.saturating_add(self.out).saturating_sub(self.blind);
        tell_beyond(beyond);
        let held = purse.put(put, beyond);
        // Half of a lease left is the moment to ask; of a lease of one there is no half.
        let low = if bound(limit, by_all) == 1 { 0 } else { held / 2 };
        Some(Outcome {
            settled: pending.blind,
            refused: pending.asked > 0 && grown == 0 && held == 0 && !void && !standing.settling,
            settling: standing.settling,
            low,
            lasts: low as f64 > PATIENT * self.rate_now(pending.spent) as f64,
        })
    }

    /// Remembers what the store said. While it settles, what was known before may be more than
    /// what it knows: the higher one stands.
    fn learn(&mut self, pending: &Pending, standing: Standing) {
        let (mut leased, mut spent) = (standing.others_leased, standing.others_spent);
        if standing.settling {
            leased = leased.max(self.others_leased);
            spent = spent.max(self.others_spent);
        }
        self.others_leased = leased;
        self.others_spent = spent;
        self.known = Known {
            sequence: pending.sequence,
            revision: standing.revision,
            leased: standing.own.saturating_add(leased),
            spent: pending.spent.saturating_add(spent),
        };
    }

    /// The statement's fate is unknown. Nothing changes: the next one names totals again.
    pub(super) fn no_reply(&mut self) {
        self.unanswered = self.asked();
        self.pending = None;
        self.stated_spent = None;
    }

    /// The store may have lost what it was told: all of it is said once more, and what it told
    /// of others. True if there is anything to say.
    pub(super) fn restate(&mut self) -> bool {
        self.stated_spent = None;
        self.known.sequence > 0 || self.leased + self.blind > 0
    }

    /// The store took the last word on `month`; returns how many blind calls that settled.
    pub(super) fn said_farewell(&mut self, month: Month) -> u64 {
        let said = self.farewells.iter().filter(|farewell| farewell.month == month);
        let settled = said.map(|farewell| farewell.blind).sum();
        self.farewells.retain(|farewell| farewell.month != month);
        settled
    }

    /// Calls held or asked for, and under which limits; what was spent or may be, but blindly.
    #[cfg(test)]
    pub(super) fn stakes(&self, purse: &Purse) -> (u64, [Option<u64>; 2], u64) {
        let asked = self.pending.map_or(0, |pending| pending.asked);
        let limits = [self.limit, self.pending.map_or(self.limit, |pending| pending.limit)];
        (purse.look().held() + asked, limits, self.leased - self.out)
    }

    /// The total that it would claim after a loss, and its own part as it would restate it.
    #[cfg(test)]
    pub(super) fn knows(&self) -> (u64, u64) {
        (self.by_all(), self.leased - self.out + self.blind)
    }

    /// Whether nothing remains to be told to the store.
    pub(super) fn is_settled(&self, purse: &Purse) -> bool {
        purse.look().held() == 0
            && self.out == 0
            && self.blind == 0
            && self.farewells.is_empty()
            && self.stated_spent == Some(self.spent(purse))
    }
}

#[cfg(test)]
mod sabotage;
