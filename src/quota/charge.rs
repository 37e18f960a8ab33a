//! The results of charging a call, and the policy while the store can grant no calls.

use crate::model::month::Month;

/// The policy for calls while the store can grant none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Admit a bounded number of unbacked calls, and report them once the store answers again.
    Open,
    /// Admit no unbacked call: answer with status 500, as if riskgate had failed.
    Closed,
}

/// The calls that an account has left, for the RateLimit headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The month's limit.
    pub limit: u64,
    /// Calls that remain of the limit.
    pub remaining: u64,
    /// Whole seconds until the next month begins.
    pub reset_in_seconds: u64,
}

/// Why a call was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Fewer calls are left of the month's limit than were asked for, as far as this node knows.
    Exhausted,
    /// Nobody can tell whether calls are left:
    /// - The store did not answer in time.
    /// - The store is down, recovers from a data loss or fails for this account alone, and riskgate
    ///   may admit no unbacked call: the policy is `Closed`, or too many unbacked calls
    ///   (`max_unsettled`) wait for the store's confirmation.
    /// - No clock was ever set, so no month is known.
    StoreUnavailable,
}

/// A spent call, or the spent calls of one batch. A charge can be refunded once, to the lease that
/// spent it.
#[derive(Debug)]
pub struct Charge {
    pub(super) month: Month,
    /// How many calls were spent.
    pub(super) calls: u64,
    /// The epoch of the lease when it spent the calls.
    pub(super) lease_epoch: u16,
    /// No lease covers the calls: riskgate admitted them while the store could grant none.
    pub(super) is_unbacked: bool,
    /// Calls that remain of the month's limit after this charge, as far as this node knows; `None`
    /// if unlimited.
    pub remaining: Option<u64>,
}

impl Charge {
    /// The month that the calls belong to.
    pub fn month(&self) -> Month {
        self.month
    }

    /// How many calls were spent.
    pub fn calls(&self) -> u64 {
        self.calls
    }
}
