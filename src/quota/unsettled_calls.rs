//! The unbacked calls that the store has not confirmed yet, and how many may be admitted.
//!
//! All accounts share `store.max_unsettled`. If the reports of one account fail alone, its calls
//! count apart, up to the same number. Otherwise that account's calls, which the store does not
//! confirm, would leave no unbacked calls to the other accounts.

use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct UnsettledCalls {
    /// The most calls of all accounts whose calls count together, and the most calls of one account
    /// whose calls count apart.
    max: u64,
    shared: AtomicU64,
    /// The sum over all accounts whose calls count apart.
    apart: AtomicU64,
}

impl UnsettledCalls {
    pub(super) fn new(max: u64) -> UnsettledCalls {
        UnsettledCalls { max, shared: AtomicU64::new(0), apart: AtomicU64::new(0) }
    }

    /// Adds calls, all or none; returns false if the sum would exceed the maximum. `apart` is
    /// `None` if the account's calls count with those of other accounts; else its calls so far.
    pub(super) fn try_add(&self, calls: u64, apart: Option<u64>) -> bool {
        let counter = self.counter(apart.is_some());
        let counted_before = counter.fetch_add(calls, Ordering::Relaxed);
        let is_within = apart.unwrap_or(counted_before) + calls <= self.max;
        if !is_within {
            counter.fetch_sub(calls, Ordering::Relaxed);
        }
        is_within
    }

    /// Subtracts calls that were confirmed or refunded.
    pub(super) fn subtract(&self, calls: u64, is_apart: bool) {
        self.counter(is_apart).fetch_sub(calls, Ordering::Relaxed);
    }

    /// Lets an account's calls count apart from now on, or together with those of other accounts.
    pub(super) fn transfer(&self, calls: u64, is_apart: bool) {
        self.counter(!is_apart).fetch_sub(calls, Ordering::Relaxed);
        self.counter(is_apart).fetch_add(calls, Ordering::Relaxed);
    }

    /// The calls of all accounts.
    pub(super) fn total(&self) -> u64 {
        self.shared.load(Ordering::Relaxed) + self.apart.load(Ordering::Relaxed)
    }

    fn counter(&self, is_apart: bool) -> &AtomicU64 {
        if is_apart { &self.apart } else { &self.shared }
    }
}
