//! The accounting breaks its own order of steps, for tests that must notice it.
//!
//! A test calls these functions between steps that the gateway takes. The steps stay as shipped.

use super::{Numbers, Purse};

impl Numbers {
    /// Takes calls back into memory after the report under way has returned them to the store.
    /// `max_kept` is how many calls the report took out of memory.
    pub(in super::super) fn keep_returned_calls(&mut self, purse: &Purse, max_kept: u64) {
        let Some(report) = &mut self.pending else { return };
        let kept = report.out.min(max_kept);
        report.out -= kept;
        self.out -= kept;
        let lease = purse.look();
        purse.put(kept, lease.beyond().saturating_sub(kept));
    }

    /// Takes the kept calls out of memory, now that the store has replied. Calls that were spent
    /// meanwhile were spent without the store's knowledge.
    pub(in super::super) fn drop_kept_calls(&mut self, purse: &Purse) {
        let Some(report) = &self.pending else { return };
        let kept = self.leased + report.blind - report.out - report.floor;
        let held = purse.look().held();
        let dropped = kept.min(held);
        purse.take_out(held - dropped, false);
        // A changed limit has taken some out already.
        self.out -= (kept - dropped).min(self.out - report.out);
    }

    /// Makes the calls that the report under way asks for spendable at once.
    pub(in super::super) fn spend_before_grant(&mut self, purse: &Purse) {
        let Some(report) = &mut self.pending else { return };
        let asked = std::mem::take(&mut report.asked);
        report.floor += asked;
        self.leased += asked;
        purse.put(asked, purse.look().beyond());
    }
}
