//! What is learned from the DNS.

use prometheus::{Error, IntCounter, IntCounterVec, IntGauge, Registry};

use super::register::{counter, counters, gauge};

/// What is learned from the DNS.
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

    /// Shows how the DNS is learned from; `asked` is how many names led to each outcome so far.
    pub fn set_dns(
        &self,
        known: usize,
        queue: usize,
        dropped: u64,
        asked: impl Iterator<Item = (&'static str, u64)>,
    ) {
        let raise = |counter: &IntCounter, to: u64| {
            counter.inc_by(to.saturating_sub(counter.get()));
        };
        self.dns_learned.set(known as i64);
        self.dns_queue.set(queue as i64);
        raise(&self.dns_dropped, dropped);
        for (outcome, names) in asked {
            raise(&self.dns_queries.with_label_values(&[outcome]), names);
        }
    }
}
