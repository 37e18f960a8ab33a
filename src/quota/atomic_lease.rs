//! The 64-bit word that the calls of one account are spent from.
//!
//! Every change is one atomic operation. This file knows neither the store nor the totals: the
//! caller that adds or withdraws calls holds the lock of the account's `LeaseAccounting`, and says
//! how many.

use super::packed_lease::PackedLease;
use super::sync::{AtomicU64, Ordering};

/// The calls held for one month and one epoch. A new epoch starts when the limit changes or the
/// lease moves to another month. Calls spent in an older epoch can't be refunded.
#[derive(Debug, Default)]
pub(super) struct AtomicLease(AtomicU64);

impl AtomicLease {
    /// Reads the current value.
    pub(super) fn load(&self) -> PackedLease {
        PackedLease(self.0.load(Ordering::Acquire))
    }

    /// Spends `calls` held calls, all or none. Returns the word after the spend. `None` if fewer
    /// calls are held, or if the lease is of a month before `month`.
    pub(super) fn spend(&self, month: u64, calls: u64) -> Option<PackedLease> {
        let spend = |seen| {
            let packed = PackedLease(seen);
            let has_calls = packed.held() >= calls && packed.month() >= month;
            has_calls.then(|| seen - calls * PackedLease::ONE_HELD_CALL)
        };
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, spend).ok()?;
        Some(PackedLease(before - calls * PackedLease::ONE_HELD_CALL))
    }

    /// Withdraws the held calls above `keep`, so that no request can spend them. Returns how many
    /// calls were withdrawn. If `starts_epoch`, calls that were spent before can no longer be
    /// refunded.
    pub(super) fn withdraw_all_but(&self, keep: u64, starts_epoch: bool) -> u64 {
        let mut withdrawn = 0;
        self.update(|packed| {
            withdrawn = packed.held().saturating_sub(keep);
            let epoch = packed.epoch() + u64::from(starts_epoch);
            PackedLease::new(
                packed.month(),
                epoch,
                packed.held() - withdrawn,
                packed.unleased_low_bits() + withdrawn,
            )
        });
        withdrawn
    }

    /// Adds granted calls, sets `unleased`, and returns how many calls are then held.
    pub(super) fn add_granted(&self, granted: u64, unleased: u64) -> u64 {
        let mut held = 0;
        self.update(|packed| {
            held = packed.held() + granted;
            PackedLease::new(packed.month(), packed.epoch(), held, unleased)
        });
        held
    }

    /// Puts spent calls back, so that they can be spent again. The caller makes sure that the lease
    /// can hold them.
    pub(super) fn refund(&self, calls: u64) {
        self.0.fetch_add(calls * PackedLease::ONE_HELD_CALL, Ordering::AcqRel);
    }

    /// Counts calls as unleased, because the caller returns them to the store.
    pub(super) fn count_as_unleased(&self, calls: u64) {
        self.update(|packed| {
            let unleased = packed.unleased_low_bits() + calls;
            PackedLease::new(packed.month(), packed.epoch(), packed.held(), unleased)
        });
    }

    /// Starts a month and an epoch with no calls held. Returns how many calls of the previous month
    /// were still held.
    pub(super) fn start_month_and_drop_held(&self, month: u64, unleased: u64) -> u64 {
        let mut dropped = 0;
        self.update(|packed| {
            dropped = packed.held();
            PackedLease::new(month, packed.epoch() + 1, 0, unleased)
        });
        dropped
    }

    fn update(&self, mut change: impl FnMut(PackedLease) -> PackedLease) {
        // Always succeeds, because the closure always returns a word.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |seen| {
            Some(change(PackedLease(seen)).0)
        });
    }
}
