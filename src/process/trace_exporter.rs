//! Sends the spans of traces to an OpenTelemetry collector, from a thread of its own.

mod grpc;

use std::sync::Arc;
use std::time::Duration;

use ureq::tls::TlsConfig;

use crate::observe::traces::{
    MAX_SPANS_IN_MESSAGE, TraceOptions, TraceProtocol, Tracer, encode_spans,
};
use crate::support::trusted_authorities::client_tls_config;

/// How long the thread waits at most until a message is full.
const MAX_SPAN_WAIT: Duration = Duration::from_secs(1);
/// How long the collector may take to accept a message.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the thread that sends the spans of this tracer, until the tracer is closed.
pub fn start_trace_exporter(tracer: Arc<Tracer>, options: TraceOptions) -> std::io::Result<()> {
    let tls = match options.endpoint.starts_with("https://") {
        true => Some(client_tls_config(options.tls_ca.as_deref()).map_err(std::io::Error::other)?),
        false => None,
    };
    std::thread::Builder::new()
        .name("traces".to_owned())
        .spawn(move || export_until_closed(&tracer, &options, tls.as_ref()))
        .map(drop)
}

fn export_until_closed(tracer: &Tracer, options: &TraceOptions, tls: Option<&TlsConfig>) {
    let mut is_failing = false;
    loop {
        let (mut spans, is_closed) = tracer.wait_and_take_spans(MAX_SPAN_WAIT);
        while !spans.is_empty() {
            // Collectors limit the size of a message.
            let message = spans.split_off(spans.len().saturating_sub(MAX_SPANS_IN_MESSAGE));
            let count = message.len();
            match send(options, tls, &encode_spans(&options.service_name, message)) {
                Ok(()) => {
                    tracer.count_exported(count);
                    if std::mem::take(&mut is_failing) {
                        log::info!("traces.endpoint takes spans again");
                    }
                }
                Err(problem) => {
                    tracer.count_dropped(count);
                    if !std::mem::replace(&mut is_failing, true) {
                        log::warn!(
                            "traces.endpoint: expected a collector that takes spans, but found \
                             {problem}"
                        );
                    }
                }
            }
        }
        if is_closed {
            return tracer.report_exporter_done();
        }
    }
}

fn send(options: &TraceOptions, tls: Option<&TlsConfig>, body: &[u8]) -> Result<(), String> {
    match options.protocol {
        TraceProtocol::Http => post(&options.endpoint, tls, body),
        TraceProtocol::Grpc => grpc::export(&options.endpoint, body, EXPORT_TIMEOUT),
    }
}

/// Sends a message of OTLP over HTTP.
fn post(endpoint: &str, tls: Option<&TlsConfig>, body: &[u8]) -> Result<(), String> {
    // A proxy that the environment names may be for other programs. A redirect would lose the body.
    let config = ureq::Agent::config_builder().timeout_global(Some(EXPORT_TIMEOUT));
    let config = config.tls_config(tls.cloned().unwrap_or_default());
    let config = config.proxy(None).max_redirects(0).build();
    let agent = ureq::Agent::new_with_config(config);
    let sent = agent.post(endpoint).content_type("application/x-protobuf").send(body);
    match sent.map_err(|error| error.to_string())?.status().as_u16() {
        200..=299 => Ok(()),
        status => Err(format!("status {status}")),
    }
}
