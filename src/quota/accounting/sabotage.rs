//! Deliberate faults in the accounting: the simulation must notice each of them.
//!
//! A test calls these functions between two steps of the shipped code, which itself is unchanged.

use super::{AtomicLease, LeaseAccounting};

impl LeaseAccounting {
    /// Fault: the calls that the report in flight returns to the store become spendable again.
    /// `withdrawn` is how many calls were withdrawn from the lease for that report.
    pub(in super::super) fn make_returned_calls_spendable(
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
    pub(in super::super) fn withdraw_returned_calls(&mut self, atomic_lease: &AtomicLease) {
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
    pub(in super::super) fn make_ungranted_calls_spendable(&mut self, atomic_lease: &AtomicLease) {
        let Some(report) = &mut self.pending_report else { return };
        let asked = std::mem::take(&mut report.requested_calls);
        report.leased_floor += asked;
        self.own_leased += asked;
        atomic_lease.add_granted(asked, atomic_lease.load().unleased_low_bits());
    }
}
