//! What accounts have used of a month, as this node knows it from its memory.

use super::ledger::Ledger;
use crate::model::month::Month;

/// After the store granted an account nothing, riskgate does not ask again for half a second. The
/// account counts as exhausted for this much longer.
const EXHAUSTED_FOR_LONGER_MS: u64 = 1_500;

/// What an account with a limit has used of a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountUsage<'u> {
    /// The account.
    pub account: &'u str,
    /// The calls that all nodes have spent: this node's exactly, the others' as last reported.
    pub spent: u64,
    /// The monthly limit in force.
    pub limit: u64,
    /// Whether the store granted the account nothing within the last two seconds. Another node may
    /// still hold calls of the account.
    pub is_exhausted: bool,
}

impl Ledger {
    /// Visits each account that has a limit and of which this node knows calls in the month. Locks
    /// one lease at a time, for a moment, so calls hardly wait. The node that last reported an
    /// account's calls knows those of all nodes, so at least one node sees the exact number.
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
