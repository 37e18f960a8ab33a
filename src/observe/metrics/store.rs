//! The store of the ledger, and the clocks that it goes by.

use prometheus::{Error, IntGauge, Registry};

use super::register::gauge;

/// The store of the ledger, and the clocks that it goes by.
pub struct StoreMetrics {
    /// 1 while a clock is doubted, or calls were counted in a month that has not begun.
    pub clock_doubted: IntGauge,
    /// 1 while the store counts as down.
    pub store_down: IntGauge,
    /// How many of `store.wait_replicas` lack what was last stated.
    pub replicas_missing: IntGauge,
    /// 1 while all nodes restate their numbers.
    pub store_settling: IntGauge,
    /// Commits of the ledger.
    pub store_commits: IntGauge,
    /// Failed operations of the ledger.
    pub store_failures: IntGauge,
    /// Calls admitted while the store was down, not yet settled.
    pub store_unsettled: IntGauge,
}

impl StoreMetrics {
    pub(super) fn register(registry: &Registry) -> Result<StoreMetrics, Error> {
        Ok(StoreMetrics {
            clock_doubted: gauge(
                registry,
                "riskgate_clock_doubted",
                "1 while a clock is doubted, or a month was counted in that has not begun.",
            )?,
            store_down: gauge(
                registry,
                "riskgate_store_down",
                "1 while the store counts as down.",
            )?,
            replicas_missing: gauge(
                registry,
                "riskgate_store_replicas_missing",
                "How many of store.wait_replicas lack what was last stated.",
            )?,
            store_settling: gauge(
                registry,
                "riskgate_store_settling",
                "1 while all nodes restate their numbers, since the store may have lost some.",
            )?,
            store_commits: gauge(registry, "riskgate_store_commits", "Commits of the ledger.")?,
            store_failures: gauge(
                registry,
                "riskgate_store_failures",
                "Failed ledger operations.",
            )?,
            store_unsettled: gauge(
                registry,
                "riskgate_store_unsettled_calls",
                "Calls admitted while the store was down, not yet settled.",
            )?,
        })
    }
}
