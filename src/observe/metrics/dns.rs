//! The metrics of DNS resolutions.

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge};

use super::register::{Registrar, raise_counter};

/// DNS resolutions and their cache.
pub struct DnsMetrics {
    resolutions_by_outcome: IntCounterVec,
    known_names: IntGauge,
    queued_names: IntGauge,
    dropped_names: IntCounter,
}

impl DnsMetrics {
    pub(super) fn register(registrar: Registrar<'_>) -> Result<DnsMetrics, Error> {
        Ok(DnsMetrics {
            resolutions_by_outcome: registrar.counter_vec(
                "riskgate_dns_resolutions_total",
                "Names resolved for the table, by outcome.",
                &["outcome"],
            )?,
            known_names: registrar
                .gauge("riskgate_dns_learned_names", "Names with a learned fact in memory.")?,
            queued_names: registrar
                .gauge("riskgate_dns_queue_length", "Names waiting for a DNS resolution.")?,
            dropped_names: registrar.counter(
                "riskgate_dns_names_dropped_total",
                "Names dropped because the DNS queue was full.",
            )?,
        })
    }

    /// Sets the DNS metrics. `dropped_total` and `resolved_by_outcome` count names since the start.
    pub fn set_dns_metrics(
        &self,
        known_count: usize,
        queued_count: usize,
        dropped_total: u64,
        resolved_by_outcome: impl Iterator<Item = (&'static str, u64)>,
    ) {
        self.known_names.set(known_count as i64);
        self.queued_names.set(queued_count as i64);
        raise_counter(&self.dropped_names, dropped_total);
        for (outcome, names) in resolved_by_outcome {
            raise_counter(&self.resolutions_by_outcome.with_label_values(&[outcome]), names);
        }
    }
}
