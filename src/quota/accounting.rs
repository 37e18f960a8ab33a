//! The lease accounting of one account: what this node has reported to the store, and what it knows
//! of the store's totals.
//!
//! Invariant: the leased calls that this node has spent, and those that it still holds, are
//! together at most what the store has leased to this node. Unbacked calls, which riskgate admits
//! without a lease, have a count of their own until the store has confirmed them. This file does no
//! I/O, reads no clock and takes no lock: `Lease` locks this state, and the worker sends the
//! reports.

use super::atomic_lease::AtomicLease;
use super::packed_lease::max_held_calls;
use crate::model::month::Month;
use crate::store::TotalsKnownToNode;

/// The outcome of a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefundOutcome {
    /// This node can spend the calls again.
    Reusable,
    /// With the calls, this node would hold more than it may, so the calls go back to the store.
    ToStore,
    /// The month of the calls is over or the limit has changed since, so the calls stay spent.
    Stale,
}

/// The counts are of calls in `month`, unless a field says otherwise.
#[derive(Default)]
pub(super) struct LeaseAccounting {
    /// The number of the lease's month; 0 before the lease has entered a month.
    pub month: u16,
    /// The number of the latest month in which a call needed the store. The next reports move the
    /// lease to this month, if it is later.
    pub(super) requested_month: u16,
    /// `None` when unlimited.
    pub limit: Option<u64>,
    /// The number of this node's latest report about the account.
    pub(super) last_report_sequence: u64,
    /// This node's leased total in the store, from the latest grant.
    pub(super) own_leased: u64,
    /// Leased calls that this node neither holds nor has spent. The next report returns them to the
    /// store; this node never spends them again.
    pub(super) calls_to_return: u64,
    /// Unbacked calls that the store has not confirmed, so that `own_leased` lacks them.
    pub(super) unsettled_calls: u64,
    /// The reports of this account fail although the store answers. Its unsettled calls then count
    /// apart from those of other accounts.
    pub fails_alone: bool,
    /// Calls leased by all other nodes, as far as this node knows.
    pub(super) others_leased: u64,
    /// Calls spent by all other nodes, as far as the grants tell.
    pub(super) others_spent: u64,
    /// The month for which `Ledger::read_spent_by_all` last read the store, and the calls that
    /// other nodes had spent.
    pub last_read_of_others_spent: Option<(Month, u64)>,
    /// What the store acknowledged, sent with each report about this month so that the store
    /// notices a data loss.
    pub(super) known: TotalsKnownToNode,
    /// The `spent` total that was last reported to the store; `None` if it must be reported again.
    pub(super) reported_spent: Option<u64>,
    pub(super) pending_report: Option<PendingReport>,
    /// Calls requested in a report that was not answered: the store may have granted them.
    pub(super) maybe_granted: u64,
    /// The past months whose final totals the store has not accepted yet.
    pub(super) past_months_to_report: Vec<PastMonthTotals>,
    /// The calls of the batch that waits for the store; 0 if none waits.
    pub(super) wanted_calls: u64,
    /// The store has answered since the batch began to wait, and fewer calls are left than the
    /// batch needs.
    pub(super) is_batch_denied: bool,
    /// The store has answered a report that names the calls of the batch that waits.
    pub(super) is_batch_answered: bool,
    /// This node's spent total at the last tick.
    pub(super) spent_at_last_tick: u64,
    /// Calls that this node spent between the last two ticks, which are about a second apart.
    pub(super) calls_per_second: u64,
}

/// The final totals of a past month, which the lease reports until the store has accepted them.
#[derive(Clone, Copy)]
pub(super) struct PastMonthTotals {
    pub(super) month: Month,
    pub(super) spent: u64,
    pub(super) unsettled_calls: u64,
    /// What the node knew of the month when it ended.
    pub(super) known: TotalsKnownToNode,
}

/// The report in flight: the values that were current when it was built.
#[derive(Clone, Copy)]
pub(super) struct PendingReport {
    pub(super) month: u16,
    pub(super) sequence: u64,
    pub(super) leased_floor: u64,
    pub(super) returned_calls: u64,
    pub(super) unsettled_calls: u64,
    pub(super) requested_calls: u64,
    /// The calls of the batch that waited when the report was built.
    pub(super) wanted_calls: u64,
    pub(super) spent: u64,
    pub(super) limit: Option<u64>,
}

impl LeaseAccounting {
    pub(super) fn new(limit: Option<u64>) -> LeaseAccounting {
        LeaseAccounting { limit, ..LeaseAccounting::default() }
    }

    /// Calls that this node has spent of the lease's month.
    pub(super) fn own_spent(&self, atomic_lease: &AtomicLease) -> u64 {
        self.own_leased - self.calls_to_return - atomic_lease.load().held() + self.unsettled_calls
    }

    /// Calls that other nodes have spent of this month, as far as the grants tell; `None` before
    /// the first grant.
    pub(super) fn others_spent(&self) -> Option<u64> {
        (self.known.sequence > 0).then_some(self.others_spent)
    }

    pub(super) fn record_requested_month(&mut self, month: Month) {
        self.requested_month = self.requested_month.max(month.number());
    }

    /// Sets another limit, and begins an epoch. The next report returns the calls held under the
    /// old limit to the store.
    pub(super) fn set_limit(&mut self, atomic_lease: &AtomicLease, limit: Option<u64>) {
        self.limit = limit;
        self.calls_to_return += atomic_lease.withdraw_all_but(0, true);
    }

    /// Admits calls that no lease covers, all or none. Returns `None` if the known total would
    /// exceed the limit. Else returns `Some` with the calls that remain as far as this node knows:
    /// `Some(None)` if the account is unlimited.
    pub(super) fn spend_unbacked(
        &mut self,
        atomic_lease: &AtomicLease,
        month: Month,
        calls: u64,
    ) -> Option<Option<u64>> {
        self.enter_month(atomic_lease, month);
        let limit = self.limit;
        let is_too_many = |known: u64| limit.is_some_and(|limit| known + calls > limit);
        if calls > 1 && is_too_many(self.leased_by_all()) {
            // The calls that this node holds become unleased, so that the batch can use them.
            self.calls_to_return += atomic_lease.withdraw_all_but(0, false);
        }
        let known = self.leased_by_all();
        if is_too_many(known) {
            return None;
        }
        self.unsettled_calls += calls;
        Some(limit.map(|limit| limit - known - calls))
    }

    /// The unbacked calls of this and of past months that the store has not confirmed.
    pub fn unsettled_of_all_months(&self) -> u64 {
        let past = self.past_months_to_report.iter().map(|past| past.unsettled_calls);
        self.unsettled_calls + past.sum::<u64>()
    }

    /// The unsettled calls of all months if they count apart from those of other accounts, else
    /// `None`.
    pub fn unsettled_if_counted_apart(&self) -> Option<u64> {
        self.fails_alone.then(|| self.unsettled_of_all_months())
    }

    /// Refunds unbacked calls, all or none. Returns false if their month is over, or if they may be
    /// in the report in flight or in an answered report.
    pub(super) fn refund_unbacked(&mut self, month: Month, calls: u64) -> bool {
        let reported = self.pending_report.map_or(0, |pending| pending.unsettled_calls);
        let is_unreported =
            self.month == month.number() && self.unsettled_calls >= reported + calls;
        self.unsettled_calls -= if is_unreported { calls } else { 0 };
        is_unreported
    }

    /// Refunds spent calls, unless the refund is [`RefundOutcome::Stale`]: to the lease if this
    /// node may then hold the calls, else to the store.
    pub(super) fn refund(
        &mut self,
        atomic_lease: &AtomicLease,
        month: Month,
        epoch: u64,
        calls: u64,
    ) -> RefundOutcome {
        let packed = atomic_lease.load();
        if self.month != month.number() || packed.epoch() != epoch {
            return RefundOutcome::Stale;
        }
        let max_held = max_held_calls(self.limit, self.leased_by_all());
        if packed.held() + self.calls_requested() + calls <= max_held {
            atomic_lease.refund(calls);
            return RefundOutcome::Reusable;
        }
        atomic_lease.count_as_unleased(calls);
        self.calls_to_return += calls;
        RefundOutcome::ToStore
    }

    /// Calls requested in the report in flight, or in an unanswered report that the store may have
    /// granted.
    pub(super) fn calls_requested(&self) -> u64 {
        self.maybe_granted.max(self.pending_report.map_or(0, |pending| pending.requested_calls))
    }

    /// Calls leased by all nodes, as far as this node knows. Its own unsettled calls count; the
    /// calls that it returns to the store don't.
    pub(super) fn leased_by_all(&self) -> u64 {
        self.own_leased - self.calls_to_return + self.unsettled_calls + self.others_leased
    }

    /// The calls that no node has leased, as far as this node knows; `u64::MAX` without a limit.
    pub(super) fn unleased_calls(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.leased_by_all()))
    }

    /// Moves to `month` if `month` is later than the lease's month. Keeps the totals of the month
    /// that ends for a final report, unless they are 0 and no report is in flight. Returns true if
    /// the month changed.
    pub(super) fn enter_month(&mut self, atomic_lease: &AtomicLease, month: Month) -> bool {
        if month.number() <= self.month {
            return false;
        }
        let unleased = self.limit.unwrap_or(u64::MAX);
        self.calls_to_return +=
            atomic_lease.start_month_and_drop_held(u64::from(month.number()), unleased);
        let spent = self.own_leased - self.calls_to_return + self.unsettled_calls;
        let needs_final_report =
            self.own_leased + self.unsettled_calls > 0 || self.pending_report.is_some();
        if let (Some(past), true) = (Month::from_number(self.month), needs_final_report) {
            self.past_months_to_report.push(PastMonthTotals {
                month: past,
                spent,
                unsettled_calls: self.unsettled_calls,
                known: self.known,
            });
        }
        *self = LeaseAccounting {
            month: month.number(),
            requested_month: month.number(),
            limit: self.limit,
            last_report_sequence: self.last_report_sequence,
            last_read_of_others_spent: self.last_read_of_others_spent,
            wanted_calls: self.wanted_calls,
            fails_alone: self.fails_alone,
            past_months_to_report: std::mem::take(&mut self.past_months_to_report),
            ..LeaseAccounting::default()
        };
        true
    }

    /// Returns true if no calls are held and the store has every total.
    pub(super) fn is_fully_reported(&self, atomic_lease: &AtomicLease) -> bool {
        atomic_lease.load().held() == 0
            && self.calls_to_return == 0
            && self.unsettled_calls == 0
            && self.past_months_to_report.is_empty()
            && self.reported_spent == Some(self.own_spent(atomic_lease))
    }
}
