//! Sends the spans of traces to an OpenTelemetry collector, from a thread of its own.

mod grpc;

use std::sync::Arc;
use std::time::Duration;

use crate::gate::GateState;
use crate::observe::traces::{TraceOptions, TraceProtocol, encode_spans};

/// How long a span waits for others before it is sent.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long the collector may take to accept spans.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the thread that sends the spans of this state.
pub fn start_trace_exporter(state: &Arc<GateState>, options: TraceOptions) -> std::io::Result<()> {
    let state = Arc::clone(state);
    std::thread::Builder::new()
        .name("traces".to_owned())
        .spawn(move || export_until_closed(&state, &options))
        .map(drop)
}

fn export_until_closed(state: &GateState, options: &TraceOptions) {
    let tracer = &state.tracer;
    let mut is_failing = false;
    loop {
        let (spans, is_closed) = tracer.wait_and_take_spans(BATCH_DELAY);
        let count = spans.len();
        if count > 0 {
            match send(options, &encode_spans(&options.service_name, spans)) {
                Ok(()) => {
                    tracer.count_exported(count);
                    if std::mem::take(&mut is_failing) {
                        log::info!("traces: {} takes spans again", options.endpoint);
                    }
                }
                Err(problem) => {
                    tracer.count_dropped(count);
                    if !std::mem::replace(&mut is_failing, true) {
                        let endpoint = &options.endpoint;
                        log::warn!(
                            "traces: expected {endpoint} to take spans, but found {problem}"
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

fn send(options: &TraceOptions, body: &[u8]) -> Result<(), String> {
    match options.protocol {
        TraceProtocol::Http => post(&options.endpoint, body),
        TraceProtocol::Grpc => grpc::export(&options.endpoint, body, EXPORT_TIMEOUT),
    }
}

/// Sends a body of OTLP over HTTP.
fn post(endpoint: &str, body: &[u8]) -> Result<(), String> {
    let config = ureq::Agent::config_builder().timeout_global(Some(EXPORT_TIMEOUT)).build();
    let agent = ureq::Agent::new_with_config(config);
    let sent = agent.post(endpoint).content_type("application/x-protobuf").send(body);
    sent.map(drop).map_err(|error| error.to_string())
}
