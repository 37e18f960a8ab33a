//! The books of one account: what this node has told the store, and what it believes of it.
//!
//! At every moment: what the node has spent or may spend ≤ its row in the store. It does no I/O,
//! reads no clock and takes no lock; its lease does, and the worker carries the statements.

use super::atomic_lease::AtomicLease;
use super::packed_lease::held_limit;
use crate::model::month::Month;
use crate::store::KnownState;

/// What became of a call that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refund {
    /// It can be spent again.
    Reusable,
    /// No more may be held: the store is to have it.
    ToStore,
    /// Its month or its lease is over.
    Stale,
}

#[derive(Default)]
pub(super) struct LeaseAccounting {
    /// The month that all of this is about; 0 before the first call.
    pub month: u16,
    /// The month that a waiting call asks for.
    pub(super) requested_month: u16,
    /// `None` when unlimited.
    pub limit: Option<u64>,
    pub(super) sequence: u64,
    /// This node's row as the latest reply gave it.
    pub(super) leased: u64,
    /// Taken out of the purse to be given back; nothing of it is spent again.
    pub(super) returning: u64,
    /// Admitted while the store was down, not yet in `leased`.
    pub(super) unsettled: u64,
    pub(super) others_leased: u64,
    pub(super) others_spent: u64,
    /// What others had spent of a month when the store was last read for it.
    pub others_spent_read: Option<(Month, u64)>,
    pub(super) known: KnownState,
    /// What the store last heard of `spent`.
    pub(super) reported_spent: Option<u64>,
    pub(super) pending: Option<PendingReport>,
    /// Asked for without an answer: it may have been granted.
    pub(super) maybe_granted: u64,
    pub(super) final_reports: Vec<FinalReport>,
    pub(super) spent_at_tick: u64,
    /// Calls in the second before the last tick.
    pub(super) calls_per_second: u64,
}

/// The last word on a month that is over, until the store has taken it.
#[derive(Clone, Copy)]
pub(super) struct FinalReport {
    pub(super) month: Month,
    pub(super) spent: u64,
    pub(super) unsettled: u64,
}

/// The statement whose reply is awaited.
#[derive(Clone, Copy)]
pub(super) struct PendingReport {
    pub(super) month: u16,
    pub(super) sequence: u64,
    pub(super) floor: u64,
    pub(super) returning: u64,
    pub(super) unsettled: u64,
    pub(super) requested: u64,
    pub(super) spent: u64,
    pub(super) limit: Option<u64>,
}

impl LeaseAccounting {
    pub(super) fn new(limit: Option<u64>) -> LeaseAccounting {
        LeaseAccounting { limit, ..LeaseAccounting::default() }
    }

    /// What this node has spent of the running month.
    pub(super) fn spent(&self, atomic_lease: &AtomicLease) -> u64 {
        self.leased - self.returning - atomic_lease.load().held() + self.unsettled
    }

    /// What other nodes had spent when the store last spoke of this month.
    pub(super) fn others_spent(&self) -> Option<u64> {
        (self.known.sequence > 0).then_some(self.others_spent)
    }

    pub(super) fn request_calls(&mut self, month: Month) {
        self.requested_month = self.requested_month.max(month.number());
    }

    /// Sets another limit: nothing held under the old one remains spendable.
    pub(super) fn set_limit(&mut self, atomic_lease: &AtomicLease, limit: Option<u64>) {
        self.limit = limit;
        self.returning += atomic_lease.withdraw_all_but(0, true);
    }

    /// Admits one call without the store's word; `None` when what is known for certain has
    /// reached the limit already. Says what remains, as far as is known.
    pub(super) fn spend_unbacked(
        &mut self,
        atomic_lease: &AtomicLease,
        month: Month,
    ) -> Option<Option<u64>> {
        self.enter(atomic_lease, month);
        let known = self.leased_by_all();
        if self.limit.is_some_and(|limit| known >= limit) {
            return None;
        }
        self.unsettled += 1;
        Some(self.limit.map(|limit| limit - known - 1))
    }

    /// Takes a blind call back, unless the store may know of it already.
    pub(super) fn refund_unbacked(&mut self, month: Month) -> bool {
        let stated = self.pending.map_or(0, |pending| pending.unsettled);
        let ours = self.month == month.number() && self.unsettled > stated;
        self.unsettled -= u64::from(ours);
        ours
    }

    /// Takes a spent call back: into the purse, or for the store where the purse may not hold
    /// more.
    pub(super) fn refund(
        &mut self,
        atomic_lease: &AtomicLease,
        month: Month,
        epoch: u64,
    ) -> Refund {
        let word = atomic_lease.load();
        if self.month != month.number() || word.epoch() != epoch {
            return Refund::Stale;
        }
        if word.held() + self.asked() < held_limit(self.limit, self.leased_by_all()) {
            atomic_lease.return_one();
            return Refund::Reusable;
        }
        self.returning += 1;
        Refund::ToStore
    }

    /// What is asked for now, or was and may have been granted.
    pub(super) fn asked(&self) -> u64 {
        self.maybe_granted.max(self.pending.map_or(0, |pending| pending.requested))
    }

    /// What all nodes have leased, as far as is known.
    pub(super) fn leased_by_all(&self) -> u64 {
        self.leased - self.returning + self.unsettled + self.others_leased
    }

    /// Makes `month` the running one, if it is later than the one that is.
    pub(super) fn enter(&mut self, atomic_lease: &AtomicLease, month: Month) -> bool {
        if month.number() <= self.month {
            return false;
        }
        let beyond = self.limit.unwrap_or(u64::MAX);
        self.returning += atomic_lease.start_month(u64::from(month.number()), beyond);
        let spent = self.leased - self.returning + self.unsettled;
        let has_past_report = self.leased + self.unsettled > 0 || self.pending.is_some();
        if let (Some(past), true) = (Month::from_number(self.month), has_past_report) {
            self.final_reports.push(FinalReport { month: past, spent, unsettled: self.unsettled });
        }
        *self = LeaseAccounting {
            month: month.number(),
            requested_month: month.number(),
            limit: self.limit,
            sequence: self.sequence,
            others_spent_read: self.others_spent_read,
            final_reports: std::mem::take(&mut self.final_reports),
            ..LeaseAccounting::default()
        };
        true
    }

    /// Calls held or asked for, and under which limits; what was spent or may be, but blindly.
    #[cfg(test)]
    pub(super) fn exposure(&self, atomic_lease: &AtomicLease) -> (u64, [Option<u64>; 2], u64) {
        let asked = self.pending.map_or(0, |pending| pending.requested);
        let limits = [self.limit, self.pending.map_or(self.limit, |pending| pending.limit)];
        (atomic_lease.load().held() + asked, limits, self.leased - self.returning)
    }

    /// The total that it would claim after a loss, and its own part as it would restate it.
    #[cfg(test)]
    pub(super) fn claimed_totals(&self) -> (u64, u64) {
        (self.leased_by_all(), self.leased - self.returning + self.unsettled)
    }

    /// Whether nothing remains to be told to the store.
    pub(super) fn is_fully_reported(&self, atomic_lease: &AtomicLease) -> bool {
        atomic_lease.load().held() == 0
            && self.returning == 0
            && self.unsettled == 0
            && self.final_reports.is_empty()
            && self.reported_spent == Some(self.spent(atomic_lease))
    }
}

#[cfg(test)]
mod sabotage;
