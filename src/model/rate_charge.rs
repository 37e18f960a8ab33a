//! What a node tells a store about the bucket of one client, so that other nodes know of it.

use super::sign_up::Pseudonym;

/// Requests that a node took out of one bucket. All times are durations before or after the moment
/// at which the node makes the charge, so no clock of a node enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateCharge {
    /// Stands for scope, rate and client of the bucket.
    pub bucket: Pseudonym,
    /// How long the bucket needs to refill these requests.
    pub refill_ns: u64,
    /// How long ago the first of these requests was.
    pub first_request_age_ns: u64,
    /// The time until the bucket is full, as far as this node knows.
    pub until_full_ns: u64,
    /// For how long the bucket has not been full at any moment, as far as this node knows.
    pub not_full_for_ns: u64,
    /// The longest time until the bucket is full that the store may answer.
    pub max_until_full_ns: u64,
}
