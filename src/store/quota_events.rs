//! Quota events. Each says that an account has reached a threshold of its monthly limit, and has
//! the message that a webhook delivers to a receiver. Values only: the store does not know what a
//! message says.

use crate::model::month::Month;

/// The most events that may be pending. A store takes no further ones until some are finished.
pub const MAX_PENDING_QUOTA_EVENTS: usize = 10_000;

/// An event to record. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewQuotaEvent {
    /// Identifies the event: a store keeps one event for each key.
    pub key: String,
    /// The account that the event is about.
    pub account: String,
    /// The month that the event is about.
    pub month: Month,
    /// The message. It stays the same for each attempt.
    pub body: String,
    /// When the event was recorded first.
    pub created_at: i64,
    /// When the event is due first.
    pub due_at: i64,
}

/// The times that a claim of quota events depends on, in Unix seconds.
#[derive(Clone, Copy, Debug)]
pub struct ClaimTimes {
    /// The present time: events that are due by now are claimed.
    pub now: i64,
    /// No event is due later than this, unless a clock was ahead when the event was written.
    pub latest_due: i64,
    /// When the claim ends, so that another caller may claim the event.
    pub claimed_until: i64,
}

/// An event that the caller has claimed: nobody else may send the event until the claim ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedQuotaEvent {
    /// Identifies the event.
    pub key: String,
    /// The account that the event is about.
    pub account: String,
    /// The message.
    pub body: String,
    /// When the event was recorded first, in Unix seconds.
    pub created_at: i64,
    /// The number of this attempt, from 1. This number identifies the claim.
    pub attempts: u32,
}

/// The outcome of a claimed event. Times are Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaEventOutcome {
    /// The receiver accepted the message at this time.
    Delivered(i64),
    /// The event was given up at this time.
    GivenUp(i64),
    /// The event is due again at this time.
    DueAgain(i64),
}

/// The state of an event in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaEventState {
    /// The event waits for its next attempt.
    Pending,
    /// The receiver accepted the message at this Unix second.
    Delivered(i64),
    /// The event was given up at this Unix second.
    GivenUp(i64),
}

/// An event as a store keeps it. Once an event is finished, the store deletes its account and body,
/// and keeps its key for a while, so that the event is not recorded again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaEventRow {
    /// Identifies the event.
    pub key: String,
    /// The account; empty once the event is finished.
    pub account: String,
    /// The month that the event is about.
    pub month: Month,
    /// The message; empty once the event is finished.
    pub body: String,
    /// When the event was recorded first, in Unix seconds.
    pub created_at: i64,
    /// The number of attempts so far.
    pub attempts: u32,
    /// Whether the event is pending or finished.
    pub state: QuotaEventState,
}
