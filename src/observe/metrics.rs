//! Counters and gauges in Prometheus' text format.
//!
//! Owns the registry and every metric's name. Labels are closed sets: no key, account or domain
//! ever becomes one. It never decides anything.

mod connections;
mod dns;
mod register;
mod reloads;
mod requests;
mod store;
mod table;

use prometheus::{Encoder, Error, Registry, TextEncoder};

use connections::ConnectionMetrics;
use dns::DnsMetrics;
use reloads::ReloadMetrics;
use requests::RequestMetrics;
pub use requests::{OUTCOMES, RouteLabel};
use store::StoreMetrics;
use table::TableMetrics;

/// Every metric of the gateway.
pub struct Metrics {
    registry: Registry,
    /// Client connections, and what of them failed.
    pub connections: ConnectionMetrics,
    /// Requests: their routes and outcomes, and what was dropped of their records.
    pub requests: RequestMetrics,
    /// Reloads, and what they led to that serves now.
    pub reloads: ReloadMetrics,
    /// The serving table, and the feeds that its lists come from.
    pub table: TableMetrics,
    /// What is learned from the DNS.
    pub dns: DnsMetrics,
    /// The store of the ledger, and the clocks that it goes by.
    pub store: StoreMetrics,
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Result<Metrics, Error> {
        let registry = Registry::new();
        Ok(Metrics {
            connections: ConnectionMetrics::register(&registry)?,
            requests: RequestMetrics::register(&registry)?,
            reloads: ReloadMetrics::register(&registry)?,
            table: TableMetrics::register(&registry)?,
            dns: DnsMetrics::register(&registry)?,
            store: StoreMetrics::register(&registry)?,
            registry,
        })
    }

    /// Everything, as a scraper reads it.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_an_outcome() {
        use crate::model::refusal::Refusal::*;
        for refusal in [BadRequest, Unauthorized, NotFound, UriTooLong, HeadersTooLarge, Internal] {
            assert!(OUTCOMES.contains(&refusal.code()));
        }
        let metrics = Metrics::new().unwrap();
        metrics.requests.count_request(RouteLabel::Domain, "unauthorized", 0.001);
        metrics.requests.count_request(RouteLabel::Domain, "no such outcome", 0.001);
        let text = String::from_utf8(metrics.render()).unwrap();
        for line in [
            r#"riskgate_requests_total{outcome="unauthorized",route="domain"} 1"#,
            r#"riskgate_requests_total{outcome="other",route="domain"} 1"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
