//! The words between the ledger and a store: what a node says, and what it is told.

use std::time::Duration;

use crate::model::month::Month;

/// What holds for all statements that a node makes at once.
#[derive(Clone, Copy, Debug)]
pub struct BatchContext<'r> {
    /// Who speaks: 128 random bits, drawn for one process run.
    pub node: &'r [u8; 16],
    /// The latest month that the node counts in.
    pub month: Month,
    /// For how long the node knows that the store may have lost something; usually zero.
    pub recovery_left: Duration,
    /// Whether a word that too few replicas have is none. Without it the server's own is taken,
    /// and [`Store::missing_replicas`](super::Store::missing_replicas) tells how many lack it.
    pub needs_replicas: bool,
}

/// "My own number shall be `target`": one node's statement about one account and month.
///
/// It names totals and never differences, so that saying it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// Whose calls.
    pub account: String,
    /// Which month they belong to.
    pub month: Month,
    /// Counts this node's statements; the store ignores one that is not newer than what it knows.
    pub sequence: u64,
    /// What the node would like to hold as leased, in all of this month.
    pub target: u64,
    /// What the node has spent or still holds: its number never falls below, whatever the limit.
    pub floor: u64,
    /// What the node has spent.
    pub spent: u64,
    /// The limit in force; `None` when unlimited.
    pub limit: Option<u64>,
    /// What the store has acknowledged before: it must still know.
    pub known: KnownState,
}

/// What a node remembers of the store's latest word on an account and month; zeros before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownState {
    /// The node's own statement that was acknowledged.
    pub sequence: u64,
    /// How often the account's numbers had changed.
    pub revision: u64,
    /// What all nodes together had leased, with what this one admitted since.
    pub leased: u64,
    /// What all nodes together had spent, with what this one did since.
    pub spent: u64,
}

/// The store's word on a [`Statement`], once it is as durable as the store makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// This node's leased number as it now stands.
    pub own_leased: u64,
    /// The sum of what all other nodes have leased.
    pub others_leased: u64,
    /// The sum of what all other nodes have spent.
    pub others_spent: u64,
    /// How often the account's numbers have changed.
    pub revision: u64,
    /// The store has lost something: it takes numbers, and grants nothing for a few seconds.
    pub is_recovering: bool,
}

impl Grant {
    /// The number that a statement leads to, given what others hold: the one rule of the
    /// ledger, the same in every store.
    ///
    /// What goes beyond the floor is a grant, and is granted as far as the sum stays within the
    /// limit. The floor always stands: it was admitted, or may be at this moment.
    pub fn decide_leased(statement: &LeaseReport, others_leased: u64) -> u64 {
        let room = match statement.limit {
            Some(limit) => limit.saturating_sub(others_leased),
            None => u64::MAX,
        };
        statement.target.min(room).max(statement.floor)
    }
}

/// How a store is: asked for once a second, and after every failure before anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Which server, and which life of it. Another one than before may have lost something.
    pub incarnation: String,
    /// The store's own clock in Unix seconds, if it is not ours.
    pub unix_now: Option<i64>,
    /// For how long nothing is granted, since something may have been lost.
    pub recovery_left: Duration,
}

#[cfg(test)]
mod tests;
