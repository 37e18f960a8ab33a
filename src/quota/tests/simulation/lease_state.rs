//! What the simulation reads of a lease, and deliberate faults in its accounting, each of which the
//! simulation must notice.
//!
//! A test calls the functions of the faults between two steps of the shipped code, which itself is
//! unchanged.

use crate::model::month::Month;
use crate::quota::accounting::LeaseAccounting;
use crate::quota::atomic_lease::AtomicLease;
use crate::quota::lease::Lease;

impl Lease {
    /// The number of the lease's month, and the values of
    /// `LeaseAccounting::held_limits_and_leased`.
    pub(in crate::quota) fn month_held_limits_and_leased(
        &self,
    ) -> (u16, u64, [Option<u64>; 2], u64) {
        self.change_accounting(|accounting, atomic_lease| {
            let (held, limits, own_leased) = accounting.held_limits_and_leased(atomic_lease);
            (accounting.month, held, limits, own_leased)
        })
    }

    /// The leased total over all nodes, and this node's own, as this node would report them after a
    /// data loss. Both are 0 if the lease is in another month.
    pub(in crate::quota) fn recoverable_leased_totals(&self, month: Month) -> (u64, u64) {
        let accounting = self.lock_accounting();
        match accounting.month == month.number() {
            true => accounting.recoverable_leased_totals(),
            false => (0, 0),
        }
    }
}

impl LeaseAccounting {
    /// The calls of the batch that waits, or that waited when the report in flight was built.
    pub(in crate::quota) fn batch_calls(&self) -> u64 {
        self.wanted_calls.max(self.pending_report.map_or(0, |pending| pending.wanted_calls))
    }

    /// Returns three values: the calls held or requested; the present limit and the limit in the
    /// report in flight; this node's leased total without the calls that it returns.
    pub(in crate::quota) fn held_limits_and_leased(
        &self,
        atomic_lease: &AtomicLease,
    ) -> (u64, [Option<u64>; 2], u64) {
        let requested = self.pending_report.map_or(0, |pending| pending.requested_calls);
        let limits = [self.limit, self.pending_report.map_or(self.limit, |pending| pending.limit)];
        (atomic_lease.load().held() + requested, limits, self.own_leased - self.calls_to_return)
    }

    /// The leased total over all nodes that this node would report after a data loss, and its own
    /// part of that total.
    pub(in crate::quota) fn recoverable_leased_totals(&self) -> (u64, u64) {
        (self.leased_by_all(), self.own_leased - self.calls_to_return + self.unsettled_calls)
    }

    /// Fault: the calls that the report in flight returns to the store become spendable again.
    /// `withdrawn` is how many calls were withdrawn from the lease for that report.
    pub(in crate::quota) fn make_returned_calls_spendable(
        &mut self,
        atomic_lease: &AtomicLease,
        withdrawn: u64,
    ) {
        let Some(report) = &mut self.pending_report else { return };
        let kept = report.returned_calls.min(withdrawn);
        report.returned_calls -= kept;
        self.calls_to_return -= kept;
        let lease = atomic_lease.load();
        atomic_lease.add_granted(kept, lease.unleased_low_bits().saturating_sub(kept));
    }

    /// Withdraws the calls of `make_returned_calls_spendable` again, before the node applies the
    /// store's reply. The calls that were spent in between had no lease.
    pub(in crate::quota) fn withdraw_returned_calls(&mut self, atomic_lease: &AtomicLease) {
        let Some(report) = &self.pending_report else { return };
        let kept =
            self.own_leased + report.unsettled_calls - report.returned_calls - report.leased_floor;
        let held = atomic_lease.load().held();
        let dropped = kept.min(held);
        atomic_lease.withdraw_all_but(held - dropped, false);
        // A changed limit may have withdrawn some of these calls already.
        self.calls_to_return -= (kept - dropped).min(self.calls_to_return - report.returned_calls);
    }

    /// Fault: makes the calls that the report in flight requests spendable before they are granted.
    pub(in crate::quota) fn make_ungranted_calls_spendable(&mut self, atomic_lease: &AtomicLease) {
        let Some(report) = &mut self.pending_report else { return };
        let asked = std::mem::take(&mut report.requested_calls);
        report.leased_floor += asked;
        self.own_leased += asked;
        atomic_lease.add_granted(asked, atomic_lease.load().unleased_low_bits());
    }
}
