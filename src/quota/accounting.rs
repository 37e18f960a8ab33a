//! The books of one account: what this node has told the store, and what it believes of it.
//!
//! At every moment: what the node has spent or may spend ≤ its row in the store. It does no I/O,
//! reads no clock and takes no lock; its lease does, and the worker carries the statements.

use super::atomic_lease::Purse;
use super::packed_lease::bound;
use crate::model::month::Month;
use crate::store::Known;

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

#[derive(Default)]
pub(super) struct Numbers {
    /// The month that all of this is about; 0 before the first call.
    pub month: u16,
    /// The month that a waiting call asks for.
    pub(super) asked_month: u16,
    /// `None` when unlimited.
    pub limit: Option<u64>,
    pub(super) sequence: u64,
    /// This node's row as the latest reply gave it.
    pub(super) leased: u64,
    /// Taken out of the purse to be given back; nothing of it is spent again.
    pub(super) out: u64,
    /// Admitted while the store was down, not yet in `leased`.
    pub(super) blind: u64,
    pub(super) others_leased: u64,
    pub(super) others_spent: u64,
    /// What others had spent of a month when the store was last read for it.
    pub others_read: Option<(Month, u64)>,
    pub(super) known: Known,
    /// What the store last heard of `spent`.
    pub(super) stated_spent: Option<u64>,
    pub(super) pending: Option<Pending>,
    /// Asked for without an answer: it may have been granted.
    pub(super) unanswered: u64,
    pub(super) farewells: Vec<Farewell>,
    pub(super) spent_at_tick: u64,
    /// Calls in the second before the last tick.
    pub(super) rate: u64,
}

/// The last word on a month that is over, until the store has taken it.
#[derive(Clone, Copy)]
pub(super) struct Farewell {
    pub(super) month: Month,
    pub(super) spent: u64,
    pub(super) blind: u64,
}

/// The statement whose reply is awaited.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) month: u16,
    pub(super) sequence: u64,
    pub(super) floor: u64,
    pub(super) out: u64,
    pub(super) blind: u64,
    pub(super) asked: u64,
    pub(super) spent: u64,
    pub(super) limit: Option<u64>,
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
    pub(super) fn asked(&self) -> u64 {
        self.unanswered.max(self.pending.map_or(0, |pending| pending.asked))
    }

    /// What all nodes have leased, as far as is known.
    pub(super) fn by_all(&self) -> u64 {
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
