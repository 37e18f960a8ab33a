//! What may become of a call, and what is done while the store is down.

/// What to do with calls while the store is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Serve, count locally, settle later.
    Open,
    /// Refuse with our own failure.
    Closed,
}

/// What the caller may still spend, for the RateLimit headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The month's limit.
    pub limit: u64,
    /// What remains of it.
    pub remaining: u64,
    /// Whole seconds until it starts anew.
    pub reset_in: u64,
}

/// Why a call was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The month's calls are spent.
    Exhausted,
    /// The store did not answer in time, or is down and the policy is closed.
    Store,
}
