//! The metrics, in Prometheus' text format.
//!
//! This module owns the registry and the name of every metric. No key, account or domain ever
//! becomes the value of a label. The values of labels come from the code, the config, the table, or
//! the addresses of upstream servers, so clients can't add series. This module decides nothing.

mod connections;
mod dns;
mod register;
mod reloads;
mod requests;
mod store;
mod table;
mod traces;
mod upstream;
mod webhook;

use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, Error, Registry, TextEncoder};

use connections::ConnectionMetrics;
use dns::DnsMetrics;
use register::Registrar;
use reloads::ReloadMetrics;
use requests::RequestMetrics;
pub use requests::{OUTCOMES, REQUEST_DURATION_BUCKETS, TrafficTotals};
use store::StoreMetrics;
use table::TableMetrics;
use traces::TraceMetrics;
pub use upstream::{AttemptOutcome, AttemptRecord, UpstreamMetrics, UpstreamSnapshot};
use webhook::WebhookMetrics;

/// Every metric of the gateway.
pub struct Metrics {
    registry: Registry,
    /// Client connections and their failures.
    pub connections: ConnectionMetrics,
    /// Requests by route and outcome, and dropped records of requests.
    pub requests: RequestMetrics,
    /// Reloads, and the state that they loaded.
    pub reloads: ReloadMetrics,
    /// The table in use, and the feeds that its lists come from.
    pub table: TableMetrics,
    /// DNS resolutions and their cache.
    pub dns: DnsMetrics,
    /// The upstream servers.
    pub upstream: UpstreamMetrics,
    /// The ledger's store and clocks.
    pub store: StoreMetrics,
    /// The spans of traces.
    pub traces: TraceMetrics,
    /// The messages of quota webhooks.
    pub webhook: WebhookMetrics,
}

impl Metrics {
    /// Creates and registers all metrics.
    pub fn new() -> Result<Metrics, Error> {
        let registry = Registry::new();
        let registrar = Registrar(&registry);
        register_process_metrics(registrar)?;
        Ok(Metrics {
            connections: ConnectionMetrics::register(registrar)?,
            requests: RequestMetrics::register(registrar)?,
            reloads: ReloadMetrics::register(registrar)?,
            table: TableMetrics::register(registrar)?,
            dns: DnsMetrics::register(registrar)?,
            upstream: UpstreamMetrics::register(registrar)?,
            store: StoreMetrics::register(registrar)?,
            traces: TraceMetrics::register(registrar)?,
            webhook: WebhookMetrics::register(registrar)?,
            registry,
        })
    }

    /// Renders all metrics for a scraper.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // A write to a Vec can't fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        out
    }
}

/// Registers the metrics that the operating system has of the process, and the version of riskgate.
fn register_process_metrics(registrar: Registrar<'_>) -> Result<(), Error> {
    let pid = i32::try_from(std::process::id()).unwrap_or_default();
    registrar.0.register(Box::new(ProcessCollector::new(pid, "riskgate")))?;
    let build = registrar.gauge_vec(
        "riskgate_build_info",
        "1, with the version of the program.",
        &["version"],
    )?;
    build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    Ok(())
}

#[cfg(test)]
mod tests;
