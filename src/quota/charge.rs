//! The results of charging a call, and the policy while the store is down.

use crate::model::month::Month;

/// The policy for calls while the store is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Admit calls, count them locally and report them once the store answers again.
    Open,
    /// Refuse calls with status 500, as if riskgate had failed.
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
    /// All calls of the month are spent.
    Exhausted,
    /// The store did not answer in time. Or the store is down or recovering, and riskgate may admit
    /// no unbacked call: the policy is `Closed`, or `max_unsettled` unbacked calls still wait for
    /// the store's confirmation.
    StoreUnavailable,
}

/// A spent call, or the calls of one batch. They can be refunded once, to the lease that they came
/// from.
#[derive(Debug)]
pub struct Charge {
    pub(super) month: Month,
    /// How many calls were spent.
    pub(super) calls: u64,
    /// The epoch of the lease that it was spent from.
    pub(super) lease_epoch: u16,
    /// No lease covered the call: it was admitted because the store was down or recovering.
    pub(super) is_unbacked: bool,
    /// Calls that remain of the month's limit after this call; `None` if unlimited.
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
