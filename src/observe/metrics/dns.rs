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
                "riskgate_dns_queries_total",
                "Names of which the DNS was asked, by what it said.",
                &["outcome"],
            )?,
            dns_learned: gauge(
                registry,
                "riskgate_dns_learned",
                "Names of which it is kept in memory what the DNS said.",
            )?,
            dns_queue: gauge(registry, "riskgate_dns_queue", "Names that wait to be asked.")?,
            dns_dropped: counter(
                registry,
                "riskgate_dns_dropped_total",
                "Names that were not taken to be asked, since too many waited.",
            )?,
        })
    }

    /// Shows how the DNS is learned from; `asked` is how many names led to each outcome so far.
    pub fn show_dns(
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
