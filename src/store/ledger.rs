//! The values that a node and a store exchange about quota: reports, grants and probes.

use std::time::Duration;

use crate::model::month::Month;

/// The context of a batch of reports.
#[derive(Clone, Copy, Debug)]
pub struct BatchContext<'r> {
    /// The id of the reporting node: 128 random bits, drawn for one process run.
    pub node: &'r [u8; 16],
    /// The latest month that the node counts in.
    pub month: Month,
    /// How long the node expects the store to recover from a data loss; usually zero.
    pub recovery_left: Duration,
    /// If true, the store fails unless `store.wait_replicas` replicas have the reports. If false,
    /// the server's own acknowledgement is enough, and
    /// [`Store::missing_replicas`](super::Store::missing_replicas) returns how many replicas lack
    /// them.
    pub needs_replicas: bool,
}

/// One node's report about one account and month: it asks to hold `target` leased calls.
///
/// It names totals and never differences, so sending it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The account.
    pub account: String,
    /// The month that the calls belong to.
    pub month: Month,
    /// Numbers this node's reports. The store ignores a report that is not newer than the last one
    /// it knows.
    pub sequence: u64,
    /// The leased total that the node asks for, over the whole month.
    pub target: u64,
    /// The calls that the node has spent or still holds. Its leased total never falls below,
    /// whatever the limit.
    pub floor: u64,
    /// The calls that the node has spent.
    pub spent: u64,
    /// The limit in force; `None` when unlimited.
    pub limit: Option<u64>,
    /// The state that the store acknowledged before. If the store no longer has it, it has lost
    /// data.
    pub known: KnownState,
}

/// The state that a node knows from the latest grant on an account and month; zeros before the
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownState {
    /// The sequence of the node's latest acknowledged report.
    pub sequence: u64,
    /// The revision of the account's totals: how often they had changed.
    pub revision: u64,
    /// Calls leased by all nodes, including those that this node has admitted since.
    pub leased: u64,
    /// Calls spent by all nodes, including those that this node has spent since.
    pub spent: u64,
}

/// The store's answer to a [`LeaseReport`], as durable as the store makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// This node's leased total.
    pub own_leased: u64,
    /// Calls leased by all other nodes.
    pub others_leased: u64,
    /// Calls spent by all other nodes.
    pub others_spent: u64,
    /// The revision of the account's totals.
    pub revision: u64,
    /// The store has lost data. It accepts reports and grants nothing for a few seconds.
    pub is_recovering: bool,
}

impl Grant {
    /// Returns the leased total that a report leads to, given the calls leased by others. This is
    /// the one rule of the ledger, the same in every store.
    ///
    /// Calls above the floor are granted as far as the sum stays within the limit. The floor always
    /// stands, because those calls were admitted or may be at this moment.
    pub fn decide_leased(report: &LeaseReport, others_leased: u64) -> u64 {
        let headroom = match report.limit {
            Some(limit) => limit.saturating_sub(others_leased),
            None => u64::MAX,
        };
        report.target.min(headroom).max(report.floor)
    }
}

/// The state of a store. Nodes probe it once a second, and after every failure before anything
/// else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Identifies the server and its run. If it changes, the store may have lost data.
    pub incarnation: String,
    /// The store's clock in Unix seconds, if it is not this machine's.
    pub unix_now: Option<i64>,
    /// How long the store grants nothing because it may have lost data.
    pub recovery_left: Duration,
}

#[cfg(test)]
mod tests;
