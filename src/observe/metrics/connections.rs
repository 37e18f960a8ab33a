//! The metrics of client connections.

use prometheus::{Error, IntCounter, IntGauge, Registry};

use super::register::{register_counter, register_gauge};

/// Client connections and their failures.
pub struct ConnectionMetrics {
    /// Connections that are open.
    pub open_connections: IntGauge,
    /// Requests between their first byte and the end of their response.
    pub requests_in_flight: IntGauge,
    /// Panics in the process. A panic in a connection's task ends that connection only.
    pub panics: IntCounter,
    /// Connections closed before any request: over a limit, or from an untrusted proxy.
    pub connections_rejected: IntCounter,
    /// TLS handshakes that failed or took too long.
    pub tls_handshake_failures: IntCounter,
}

impl ConnectionMetrics {
    pub(super) fn register(registry: &Registry) -> Result<ConnectionMetrics, Error> {
        Ok(ConnectionMetrics {
            open_connections: register_gauge(
                registry,
                "riskgate_connections",
                "Connections that are open.",
            )?,
            requests_in_flight: register_gauge(
                registry,
                "riskgate_requests_in_flight",
                "Requests in flight.",
            )?,
            panics: register_counter(registry, "riskgate_panics_total", "Panics in the process.")?,
            connections_rejected: register_counter(
                registry,
                "riskgate_connections_rejected_total",
                "Connections closed before any request: over a limit, or from an untrusted proxy.",
            )?,
            tls_handshake_failures: register_counter(
                registry,
                "riskgate_tls_handshake_failures_total",
                "TLS handshakes that failed or took too long.",
            )?,
        })
    }
}
