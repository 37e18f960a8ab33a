//! The one word that calls of an account are spent from.
//!
//! Every change is one atomic operation on it. It knows nothing of stores and numbers; whoever
//! takes out or puts in holds the books (`numbers.rs`) and says how much.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use super::packed_lease::PackedLease;

/// What is held of an account's calls, for one month and one epoch.
#[derive(Debug)]
pub(super) struct AtomicLease(AtomicU64);

impl AtomicLease {
    pub(super) fn new() -> AtomicLease {
        AtomicLease(AtomicU64::new(0))
    }

    /// What is in it at this moment.
    pub(super) fn load(&self) -> PackedLease {
        PackedLease(self.0.load(Ordering::Acquire))
    }

    /// Spends one call of `month`, or of a later one if that has begun; the word after it.
    pub(super) fn spend_one(&self, month: u64) -> Option<PackedLease> {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let packed = PackedLease(seen);
            if packed.held() == 0 || packed.month() < month {
                return None;
            }
            let next = seen - PackedLease::ONE_HELD_CALL;
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(PackedLease(next)),
                Err(now) => seen = now,
            }
        }
    }

    /// Takes all but `keep` out, and says how much that was. With `void`, a call that was spent
    /// before can no longer be put back.
    pub(super) fn withdraw_all_but(&self, keep: u64, starts_epoch: bool) -> u64 {
        let mut taken = 0;
        self.update(|packed| {
            taken = packed.held().saturating_sub(keep);
            let epoch = packed.epoch() + u64::from(starts_epoch);
            PackedLease::new(
                packed.month(),
                epoch,
                packed.held() - taken,
                packed.unleased_low() + taken,
            )
        });
        taken
    }

    /// Adds what the store has granted, and says how much is held then.
    pub(super) fn add_granted(&self, granted: u64, beyond: u64) -> u64 {
        let mut held = 0;
        self.update(|packed| {
            held = packed.held() + granted;
            PackedLease::new(packed.month(), packed.epoch(), held, beyond)
        });
        held
    }

    /// Puts one spent call back.
    pub(super) fn return_one(&self) {
        self.0.fetch_add(PackedLease::ONE_HELD_CALL, Ordering::AcqRel);
    }

    /// Begins a month with nothing held, and says how much was held of the last one.
    pub(super) fn start_month(&self, month: u64, beyond: u64) -> u64 {
        let mut taken = 0;
        self.update(|packed| {
            taken = packed.held();
            PackedLease::new(month, packed.epoch() + 1, 0, beyond)
        });
        taken
    }

    fn update(&self, mut change: impl FnMut(PackedLease) -> PackedLease) {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let next = change(PackedLease(seen)).0;
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
