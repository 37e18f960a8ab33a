//! The values that a node and a store exchange about quota: reports, grants and probes.

use std::sync::Arc;
use std::time::Duration;

use super::error::StoreError;
use crate::model::month::Month;

/// The context of a batch of reports.
#[derive(Clone, Copy, Debug)]
pub struct ReportBatchContext<'r> {
    /// The id of the reporting node: 128 random bits, drawn for one process run.
    pub node_id: &'r [u8; 16],
    /// The latest month that has begun, as the node believes. Every earlier month is past.
    pub latest_begun_month: Month,
    /// For how much longer the store recovers from a data loss, as the node knows from its latest
    /// probe; usually zero.
    pub recovery_left: Duration,
    /// If true, the operation fails unless `store.wait_replicas` replicas have the reports. If
    /// false, the server's own acknowledgement is enough, and `Store::missing_replicas` tells how
    /// many replicas lack the reports.
    pub needs_replicas: bool,
}

/// One node's report about one account and month. A report names totals and never differences, so
/// sending it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The account.
    pub account: String,
    /// The month that the calls belong to.
    pub month: Month,
    /// The number of this report among the node's reports about the account. The store applies a
    /// report only if its number is higher than that of the last report that it applied.
    pub sequence: u64,
    /// The leased total that the node asks for: all calls of the month that it has spent, still
    /// holds, or wants to hold.
    pub target: u64,
    /// The calls that the node has spent or still holds. The store never lowers the node's leased
    /// total below this number, whatever the limit is.
    pub floor: u64,
    /// The calls that the node has spent in the month.
    pub spent: u64,
    /// The monthly limit in force; `None` when unlimited.
    pub limit: Option<u64>,
    /// What the store acknowledged to the node before. If the store has older totals, it has lost
    /// data.
    pub known: TotalsKnownToNode,
    /// Counts by day, route and key that have changed since the node's last acknowledged report. If
    /// more have changed than a commit carries, later reports have the others.
    pub usage: Vec<UsageCount>,
}

/// The calls that this node has spent of one account, day, route and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageCount {
    /// The month that the calls belong to.
    pub month: Month,
    /// The day of the month, from 1.
    pub day: u8,
    /// The route, as metrics and the access log name it.
    pub route: &'static str,
    /// The id of the key.
    pub key_id: Arc<str>,
    /// All such calls of this node.
    pub calls: u64,
}

/// The totals of an account and month that a node knows. Before the first grant, `sequence` and
/// `revision` are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalsKnownToNode {
    /// The sequence of the node's latest acknowledged report.
    pub sequence: u64,
    /// The revision of the account's totals, which counts their changes.
    pub revision: u64,
    /// Calls leased by all nodes, according to the latest grant and what this node did since. The
    /// unbacked calls that this node admitted are added; the calls that it returns are subtracted.
    pub leased_by_all: u64,
    /// Calls spent by all nodes, including those that this node has spent since.
    pub spent_by_all: u64,
    /// This node's leased total, according to the latest grant.
    pub own_leased: u64,
    /// This node's leased total as the store may have it: the floor of the node's last report, or
    /// the leased total of the grant that answered the report.
    pub reported_leased: u64,
    /// The spent total in this node's last report, answered or not.
    pub reported_spent: u64,
}

/// The store's answer to one report of a batch: a grant, or why this report alone failed. After an
/// error, the store may or may not have applied the report.
pub type ReportOutcome = Result<Grant, StoreError>;

/// The store's answer to a [`LeaseReport`]: the totals after the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The reporting node's leased total: all calls of the month that it may spend or has spent.
    pub own_leased: u64,
    /// Calls leased by all other nodes.
    pub others_leased: u64,
    /// Calls spent by all other nodes.
    pub others_spent: u64,
    /// How often the account's totals have changed; always 0 with SQLite.
    pub revision: u64,
    /// If true, the store may have lost data: for a few seconds it accepts reports, but grants
    /// nothing beyond the floor.
    pub is_recovering: bool,
}

impl Grant {
    /// Returns the leased total that the store gives the reporting node, if all other nodes have
    /// leased `others_leased` calls in total. Every store follows this rule, except while it
    /// recovers: it then gives only the floor.
    ///
    /// The node gets the calls above its floor that it asks for, as far as the sum of all nodes
    /// stays within the limit. The result is never below the floor, because the node has spent the
    /// calls of the floor or still holds them.
    pub fn decide_leased(report: &LeaseReport, others_leased: u64) -> u64 {
        let headroom = match report.limit {
            Some(limit) => limit.saturating_sub(others_leased),
            None => u64::MAX,
        };
        report.target.min(headroom).max(report.floor)
    }
}

/// The state of a store, as a probe returned it. A node probes the store once a second. After a
/// failure, a node probes the store before it sends reports again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Identifies the server, its run and its data. If this text changes, the store may have lost
    /// data. Empty with SQLite.
    pub incarnation: String,
    /// The server's clock in Unix seconds; `None` with SQLite, which has no clock of its own.
    pub unix_now: Option<i64>,
    /// For how much longer the store grants nothing beyond the floor of a report, because it may
    /// have lost data; usually zero.
    pub recovery_left: Duration,
    /// Why a server that answers refuses writes, for example because its memory is full; usually
    /// `None`.
    pub write_refusal: Option<String>,
}

#[cfg(test)]
mod tests;
