//! The metrics of client connections.

use prometheus::{Error, IntCounter};

use super::register::{OptionalGauge, Registrar};

/// Client connections and their failures.
pub struct ConnectionMetrics {
    open_connections: OptionalGauge,
    requests_in_flight: OptionalGauge,
    /// Panics in the process. A panic in a connection's task ends that connection only.
    pub panics: IntCounter,
    /// Connections closed before any request: over a limit, or without a valid PROXY header of a
    /// trusted proxy.
    pub connections_rejected: IntCounter,
    /// TLS handshakes that failed or took too long.
    pub tls_handshake_failures: IntCounter,
    /// HTTP/2 connections that riskgate closed with ENHANCE_YOUR_CALM.
    pub http2_floods: IntCounter,
}

impl ConnectionMetrics {
    pub(super) fn register(registrar: Registrar<'_>) -> Result<ConnectionMetrics, Error> {
        Ok(ConnectionMetrics {
            open_connections: registrar
                .optional_gauge("riskgate_connections", "Connections that are open.")?,
            requests_in_flight: registrar
                .optional_gauge("riskgate_requests_in_flight", "Requests in flight.")?,
            panics: registrar.counter("riskgate_panics_total", "Panics in the process.")?,
            connections_rejected: registrar.counter(
                "riskgate_connections_rejected_total",
                "Connections closed before any request: over a limit, or without the PROXY header \
                 of a trusted proxy.",
            )?,
            tls_handshake_failures: registrar.counter(
                "riskgate_tls_handshake_failures_total",
                "TLS handshakes that failed or took too long.",
            )?,
            http2_floods: registrar.counter(
                "riskgate_http2_floods_total",
                "HTTP/2 connections that riskgate closed with ENHANCE_YOUR_CALM.",
            )?,
        })
    }

    /// Sets the gauges: connections that are open, and requests between their first byte and the
    /// end of their response. A mounted gate never calls this, because it has no connections of its
    /// own.
    pub fn set_open_gauges(&self, connections: usize, requests: usize) {
        self.open_connections.set(Some(connections as i64));
        self.requests_in_flight.set(Some(requests as i64));
    }
}
