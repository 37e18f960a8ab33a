//! How many calls an account may make in a month.

/// A limit as it is stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonthlyLimit {
    /// Calls in a calendar month.
    Calls(u64),
    /// No limit.
    Unlimited,
}
