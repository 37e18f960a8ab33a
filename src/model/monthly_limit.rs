//! How many calls an account may make in a month.

/// The highest limit that riskgate takes and reports. Above 2^53 - 1, JavaScript can't represent
/// every integer.
pub const MAX_MONTHLY_LIMIT: u64 = 9_007_199_254_740_991;

/// The limit of an account, as the store keeps it and commands show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonthlyLimit {
    /// Calls in a calendar month.
    Calls(u64),
    /// No limit.
    Unlimited,
}

/// A change of the limit that an account has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitChange {
    /// The account gets this limit of its own.
    SetOwnLimit(MonthlyLimit),
    /// The account loses its own limit, so that the limit of its plan applies.
    UsePlanLimit,
}

impl LimitChange {
    /// The account's own limit after the change; `None` if the limit of its plan applies.
    pub fn own_limit(self) -> Option<MonthlyLimit> {
        match self {
            LimitChange::SetOwnLimit(limit) => Some(limit),
            LimitChange::UsePlanLimit => None,
        }
    }
}

impl MonthlyLimit {
    /// Returns the limit of a number of calls. `None` if the number is above [`MAX_MONTHLY_LIMIT`].
    pub fn of_calls(calls: u64) -> Option<MonthlyLimit> {
        (calls <= MAX_MONTHLY_LIMIT).then_some(MonthlyLimit::Calls(calls))
    }

    /// The calls that the limit allows in a month; `None` if unlimited.
    pub fn calls(self) -> Option<u64> {
        match self {
            MonthlyLimit::Calls(calls) => Some(calls),
            MonthlyLimit::Unlimited => None,
        }
    }
}
