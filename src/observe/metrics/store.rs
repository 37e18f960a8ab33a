//! The metrics of the ledger's store and clocks.

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge};

use super::register::{Registrar, raise_counter};
use crate::quota::LedgerStatus;

/// The ledger's store and clocks.
pub struct StoreMetrics {
    /// 1 while the ledger has a problem with the clock. For example, riskgate ignores the jump of a
    /// clock until the jump is confirmed.
    clock_suspect: IntGauge,
    store_down: IntGauge,
    replicas_missing: IntGauge,
    store_recovering: IntGauge,
    store_commits: IntCounter,
    store_failures: IntCounter,
    unsettled_calls: IntGauge,
    rate_exchanges_by_outcome: IntCounterVec,
    lost_rate_requests: IntCounter,
}

impl StoreMetrics {
    pub(super) fn register(registrar: Registrar<'_>) -> Result<StoreMetrics, Error> {
        Ok(StoreMetrics {
            clock_suspect: registrar.gauge(
                "riskgate_clock_suspect",
                "1 while a clock is suspect, calls are counted in a month that has not begun, or \
                 the boot id can't be read.",
            )?,
            store_down: registrar
                .gauge("riskgate_store_down", "1 while the store counts as down.")?,
            replicas_missing: registrar.gauge(
                "riskgate_store_replicas_missing",
                "Replicas of store.wait_replicas that have not acknowledged the last report.",
            )?,
            store_recovering: registrar.gauge(
                "riskgate_store_recovering",
                "1 while all nodes report their totals again because the store may have lost data.",
            )?,
            store_commits: registrar.counter(
                "riskgate_store_commits_total",
                "Batches of lease reports that the store committed.",
            )?,
            store_failures: registrar.counter(
                "riskgate_store_failures_total",
                "Batches of lease reports, and probes of the store, that failed.",
            )?,
            unsettled_calls: registrar.gauge(
                "riskgate_store_unsettled_calls",
                "Calls admitted while the store was down and not reported to it yet.",
            )?,
            rate_exchanges_by_outcome: register_rate_exchanges(registrar)?,
            lost_rate_requests: registrar.counter(
                "riskgate_store_rate_requests_lost_total",
                "Requests of clients with a shared rate that other nodes may not know.",
            )?,
        })
    }

    /// Counts an exchange of clients' rates with other nodes.
    pub fn count_rate_exchange(&self, has_succeeded: bool) {
        self.rate_exchanges_by_outcome.with_label_values(&[exchange_outcome(has_succeeded)]).inc();
    }

    /// Sets how many requests of clients with a shared rate other nodes may not know.
    pub fn set_lost_rate_requests(&self, requests: u64) {
        raise_counter(&self.lost_rate_requests, requests);
    }

    /// Sets the metrics to this state of the ledger.
    pub fn set_ledger_status(&self, status: &LedgerStatus, is_clock_suspect: bool) {
        self.clock_suspect.set(i64::from(is_clock_suspect));
        self.store_down.set(i64::from(status.store_down));
        self.replicas_missing.set(status.missing_replicas.cast_signed());
        self.store_recovering.set(i64::from(status.store_recovering));
        raise_counter(&self.store_commits, status.store_commits);
        raise_counter(&self.store_failures, status.store_failures);
        self.unsettled_calls.set(status.unsettled_calls.cast_signed());
    }
}

fn register_rate_exchanges(registrar: Registrar<'_>) -> Result<IntCounterVec, Error> {
    let exchanges = registrar.counter_vec(
        "riskgate_store_rate_exchanges_total",
        "Exchanges of shared rates of clients with the store, by outcome.",
        &["outcome"],
    )?;
    // An alert needs the series before the first failure.
    for has_succeeded in [true, false] {
        exchanges.with_label_values(&[exchange_outcome(has_succeeded)]);
    }
    Ok(exchanges)
}

fn exchange_outcome(has_succeeded: bool) -> &'static str {
    if has_succeeded { "ok" } else { "failed" }
}
