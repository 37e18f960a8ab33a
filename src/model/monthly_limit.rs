//! How many calls an account may make in a month.

/// The limit of an account, as the store keeps it and commands show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonthlyLimit {
    /// Calls in a calendar month.
    Calls(u64),
    /// No limit.
    Unlimited,
}

impl MonthlyLimit {
    /// The calls that the limit allows in a month; `None` if unlimited.
    pub fn calls(self) -> Option<u64> {
        match self {
            MonthlyLimit::Calls(calls) => Some(calls),
            MonthlyLimit::Unlimited => None,
        }
    }
}
