//! The accounting breaks its own order of steps, for tests that must notice it.
//!
//! A test calls these functions between steps that the gateway takes. The steps stay as shipped.

use super::{AtomicLease, LeaseAccounting};

impl LeaseAccounting {
    /// Takes calls back into memory after the report under way has returned them to the store.
    /// `max_kept` is how many calls the report took out of memory.
    pub(in super::super) fn keep_returned_calls(
        &mut self,
        atomic_lease: &AtomicLease,
        max_kept: u64,
    ) {
        let Some(report) = &mut self.pending else { return };
        let kept = report.returning.min(max_kept);
        report.returning -= kept;
        self.returning -= kept;
        let lease = atomic_lease.load();
        atomic_lease.add_granted(kept, lease.unleased_low().saturating_sub(kept));
    }

    /// Takes the kept calls out of memory, now that the store has replied. Calls that were spent
    /// meanwhile were spent without the store's knowledge.
    pub(in super::super) fn drop_kept_calls(&mut self, atomic_lease: &AtomicLease) {
        let Some(report) = &self.pending else { return };
        let kept = self.leased + report.unsettled - report.returning - report.floor;
        let held = atomic_lease.load().held();
        let dropped = kept.min(held);
        atomic_lease.withdraw_all_but(held - dropped, false);
        // A changed limit has taken some out already.
        self.returning -= (kept - dropped).min(self.returning - report.returning);
    }

    /// Makes the calls that the report under way asks for spendable at once.
    pub(in super::super) fn spend_before_grant(&mut self, atomic_lease: &AtomicLease) {
        let Some(report) = &mut self.pending else { return };
        let asked = std::mem::take(&mut report.requested);
        report.floor += asked;
        self.leased += asked;
        atomic_lease.add_granted(asked, atomic_lease.load().unleased_low());
    }
}
