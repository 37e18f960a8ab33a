//! What accounts have used of a month, as this node knows it from its memory.

use super::ledger::Ledger;
use crate::model::month::Month;

/// After the store granted an account nothing, its lease counts as exhausted for half a second.
/// Here the account counts as exhausted for this many milliseconds more.
const EXHAUSTED_FOR_LONGER_MS: u64 = 1_500;

/// What an account with a limit has used of a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountUsage<'u> {
    /// The account.
    pub account: &'u str,
    /// The calls that all nodes have spent: this node's exactly, those of other nodes as this node
    /// last learned them.
    pub spent: u64,
    /// The monthly limit in force.
    pub limit: u64,
    /// Whether the store's latest grant gave the account nothing, at most two seconds ago. Another
    /// node may still hold calls of the account.
    pub is_exhausted: bool,
}

impl Ledger {
    /// Visits each account that has a limit and of which this node knows spent calls in the month,
    /// or knows that the account is exhausted. Locks one lease at a time, for a moment, so calls
    /// hardly wait. Once all nodes have reported an account's calls, the node that reported last
    /// knows their sum.
    pub fn visit_month_usage(&self, month: Month, mut visit: impl FnMut(&AccountUsage<'_>)) {
        let earliest_ms = self.shared.uptime_ms().saturating_sub(EXHAUSTED_FOR_LONGER_MS);
        for lease in &self.shared.node.leases {
            let Some(limit) = lease.limit() else { continue };
            let others = lease.others_spent(month).unwrap_or(0);
            let spent = lease.own_spent(month).saturating_add(others);
            let is_exhausted = lease.is_exhausted(month, earliest_ms);
            if spent > 0 || is_exhausted {
                visit(&AccountUsage { account: lease.account(), spent, limit, is_exhausted });
            }
        }
    }
}
