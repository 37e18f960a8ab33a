//! The spans of a finished request: its own, and one for each attempt to get a response from an
//! upstream server.

use std::time::Duration;

use crate::observe::access_log::LogEntry;
use crate::observe::metrics::{AttemptOutcome, AttemptRecord};
use crate::observe::traces::{Attribute, AttributeValue, RequestTrace, Span, SpanKind};

use super::request_context::RequestContext;

/// Returns the spans of a request. `entry` is its entry in the access log.
pub(super) fn collect_spans(
    ctx: &RequestContext,
    trace: &RequestTrace,
    entry: &LogEntry<'_>,
) -> Vec<Span> {
    let started_unix_ns = u64::try_from(entry.at_ms).unwrap_or_default().saturating_mul(1_000_000);
    let request = Span {
        trace_id: trace.trace_id,
        span_id: trace.span_id,
        parent_id: trace.parent_id,
        name: format!("{} {}", entry.method, entry.route).trim_start().to_owned(),
        kind: SpanKind::Server,
        started_unix_ns,
        ended_unix_ns: started_unix_ns + entry.duration_us.saturating_mul(1_000),
        attributes: request_attributes(entry),
        is_error: entry.status >= 500 || entry.status == 0,
    };
    let attempts = ctx.attempts.iter().enumerate().map(|(index, attempt)| {
        let begun = attempt.started_at.saturating_duration_since(ctx.started_at());
        let attempt_started_ns = started_unix_ns + nanoseconds(begun);
        Span {
            trace_id: trace.trace_id,
            span_id: trace.attempt_span_id(index + 1),
            parent_id: Some(trace.span_id),
            name: format!("{} upstream", entry.method),
            kind: SpanKind::Client,
            started_unix_ns: attempt_started_ns,
            ended_unix_ns: attempt_started_ns + nanoseconds(attempt.duration),
            attributes: attempt_attributes(attempt),
            is_error: attempt.outcome != AttemptOutcome::Response,
        }
    });
    std::iter::once(request).chain(attempts).collect()
}

fn request_attributes(entry: &LogEntry<'_>) -> Vec<Attribute> {
    let mut attributes = vec![
        ("http.request.method", text_value(entry.method)),
        ("http.route", text_value(entry.route)),
        ("url.path", text_value(&entry.path_parts.concat())),
        ("http.response.status_code", AttributeValue::Number(i64::from(entry.status))),
        ("riskgate.request_id", text_value(entry.request_id)),
        ("riskgate.outcome", text_value(entry.outcome)),
    ];
    let version = entry.protocol.and_then(|protocol| protocol.strip_prefix("HTTP/"));
    let optional = [
        ("network.protocol.version", version),
        ("riskgate.reason", entry.reason),
        ("riskgate.key_id", entry.key_id),
        ("riskgate.account", entry.account),
        ("riskgate.screening", entry.screening.map(|screening| screening.action)),
        ("riskgate.rule", entry.screening.and_then(|screening| screening.rule)),
    ];
    attributes
        .extend(optional.into_iter().filter_map(|(name, value)| Some((name, text_value(value?)))));
    attributes
        .extend(entry.client.map(|client| ("client.address", text_value(&client.to_string()))));
    attributes
}

fn attempt_attributes(attempt: &AttemptRecord) -> Vec<Attribute> {
    vec![
        ("server.address", text_value(&attempt.server.ip().to_string())),
        ("server.port", AttributeValue::Number(i64::from(attempt.server.port()))),
        ("riskgate.outcome", text_value(attempt.outcome.as_str())),
    ]
}

fn text_value(text: &str) -> AttributeValue {
    AttributeValue::Text(text.to_owned())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
