//! The metrics of the ledger's store and clocks.

use prometheus::{Error, IntGauge, Registry};

use super::register::register_gauge;

/// The ledger's store and clocks.
pub struct StoreMetrics {
    /// 1 while riskgate ignores the jump of a clock until it is confirmed, or while riskgate counts
    /// calls in a month that has not begun.
    pub clock_suspect: IntGauge,
    /// 1 while the store counts as down.
    pub store_down: IntGauge,
    /// The replicas of `store.wait_replicas` that have not acknowledged the last report.
    pub replicas_missing: IntGauge,
    /// 1 while all nodes report their totals again because the store may have lost data.
    pub store_recovering: IntGauge,
    /// Batches of lease reports that the store committed, since the start.
    pub store_commits: IntGauge,
    /// Batches of lease reports and probes of the store that failed, since the start.
    pub store_failures: IntGauge,
    /// Calls admitted while the store was down and not reported to it yet.
    pub unsettled_calls: IntGauge,
}

impl StoreMetrics {
    pub(super) fn register(registry: &Registry) -> Result<StoreMetrics, Error> {
        Ok(StoreMetrics {
            clock_suspect: register_gauge(
                registry,
                "riskgate_clock_suspect",
                "1 while a clock is suspect, or calls are counted in a month that has not begun.",
            )?,
            store_down: register_gauge(
                registry,
                "riskgate_store_down",
                "1 while the store counts as down.",
            )?,
            replicas_missing: register_gauge(
                registry,
                "riskgate_store_replicas_missing",
                "Replicas of store.wait_replicas that have not acknowledged the last report.",
            )?,
            store_recovering: register_gauge(
                registry,
                "riskgate_store_recovering",
                "1 while all nodes report their totals again because the store may have lost data.",
            )?,
            store_commits: register_gauge(
                registry,
                "riskgate_store_commits_total",
                "Batches of lease reports that the store committed.",
            )?,
            store_failures: register_gauge(
                registry,
                "riskgate_store_failures_total",
                "Batches of lease reports, and probes of the store, that failed.",
            )?,
            unsettled_calls: register_gauge(
                registry,
                "riskgate_store_unsettled_calls",
                "Calls admitted while the store was down and not reported to it yet.",
            )?,
        })
    }
}
