//! The metrics of DNS resolutions.

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge, Registry};

use super::register::{counter, counters, gauge};

/// DNS resolutions and their cache.
pub struct DnsMetrics {
    dns_queries: IntCounterVec,
    dns_learned: IntGauge,
    dns_queue: IntGauge,
    dns_dropped: IntCounter,
}

impl DnsMetrics {
    pub(super) fn register(registry: &Registry) -> Result<DnsMetrics, Error> {
        Ok(DnsMetrics {
            dns_queries: counters(
                registry,
                "riskgate_dns_resolutions_total",
                "Names resolved for the table, by outcome.",
                &["outcome"],
            )?,
            dns_learned: gauge(
                registry,
                "riskgate_dns_learned_names",
                "Names whose DNS result is cached in memory.",
            )?,
            dns_queue: gauge(
                registry,
                "riskgate_dns_queue_length",
                "Names waiting for a DNS resolution.",
            )?,
            dns_dropped: counter(
                registry,
                "riskgate_dns_names_dropped_total",
                "Names dropped because the DNS queue was full.",
            )?,
        })
    }

    /// Sets the DNS metrics. `resolved` is the number of names resolved so far, by outcome.
    pub fn set_dns(
        &self,
        learned: usize,
        queue: usize,
        dropped: u64,
        resolved: impl Iterator<Item = (&'static str, u64)>,
    ) {
        let raise = |counter: &IntCounter, to: u64| {
            counter.inc_by(to.saturating_sub(counter.get()));
        };
        self.dns_learned.set(learned as i64);
        self.dns_queue.set(queue as i64);
        raise(&self.dns_dropped, dropped);
        for (outcome, names) in resolved {
            raise(&self.dns_queries.with_label_values(&[outcome]), names);
        }
    }
}
