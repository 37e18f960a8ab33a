//! The options of traces: where and how riskgate sends spans.

use std::path::PathBuf;

/// Where and how riskgate sends spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// The URL of the collector.
    pub endpoint: String,
    /// The protocol that the collector speaks.
    pub protocol: TraceProtocol,
    /// riskgate exports one trace in this many. If a trusted proxy sent a `traceparent`, its
    /// flag decides instead.
    pub sample_one_in: u64,
    /// The name of this service in the traces.
    pub service_name: String,
    /// A file of authorities that riskgate trusts besides the bundled ones and those of the system,
    /// in PEM form.
    pub tls_ca: Option<PathBuf>,
}

/// A transport of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceProtocol {
    /// A POST with a binary body.
    Http,
    /// gRPC over HTTP/2 without TLS.
    Grpc,
}
