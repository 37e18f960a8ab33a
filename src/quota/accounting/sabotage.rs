//! Deliberate faults in the accounting: the simulation must notice each of them.
//!
//! A test calls these functions between two steps of the shipped code, which itself is unchanged.

use super::{AtomicLease, LeaseAccounting};

impl LeaseAccounting {
    /// Fault: makes calls spendable again that the report in flight returns to the store.
    /// `withdrawn` is how many calls were withdrawn from memory for that report.
    pub(in super::super) fn hold_returned_calls(
        &mut self,
        atomic_lease: &AtomicLease,
        withdrawn: u64,
    ) {
        let Some(report) = &mut self.pending else { return };
        let kept = report.returning.min(withdrawn);
        report.returning -= kept;
        self.returning -= kept;
        let lease = atomic_lease.load();
        atomic_lease.add_granted(kept, lease.unleased_low().saturating_sub(kept));
    }

    /// Withdraws those calls again once the store has replied. Any that were spent meanwhile were
    /// spent without a lease.
    pub(in super::super) fn withdraw_returned_calls(&mut self, atomic_lease: &AtomicLease) {
        let Some(report) = &self.pending else { return };
        let kept = self.own_leased + report.unsettled - report.returning - report.floor;
        let held = atomic_lease.load().held();
        let dropped = kept.min(held);
        atomic_lease.withdraw_all_but(held - dropped, false);
        // A changed limit has withdrawn some of them already.
        self.returning -= (kept - dropped).min(self.returning - report.returning);
    }

    /// Fault: makes the calls that the report in flight requests spendable before they are granted.
    pub(in super::super) fn hold_ungranted_calls(&mut self, atomic_lease: &AtomicLease) {
        let Some(report) = &mut self.pending else { return };
        let asked = std::mem::take(&mut report.requested);
        report.floor += asked;
        self.own_leased += asked;
        atomic_lease.add_granted(asked, atomic_lease.load().unleased_low());
    }
}
