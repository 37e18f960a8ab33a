//! How long an exchange with an upstream server may take.

use std::time::Duration;

/// The time for an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// From the request to the last byte of the response.
    Whole(Duration),
    /// From the request to the header of the response, and then for each part of its body. `None`
    /// sets no limit.
    EachPart(Option<Duration>),
}
