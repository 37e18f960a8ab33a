//! Spans in the binary encoding of OTLP 1.x: the messages of `opentelemetry/proto/trace/v1` and
//! `collector/trace/v1` that riskgate sends, with the field numbers of their definition.

use prost::Message;

use super::span::{AttributeValue, Span, SpanKind};

#[derive(Clone, PartialEq, Message)]
struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AnyValueKind {
    #[prost(string, tag = "1")]
    StringValue(String),
    #[prost(int64, tag = "3")]
    IntValue(i64),
}

const SPAN_KIND_SERVER: i32 = 2;
const SPAN_KIND_CLIENT: i32 = 3;
const STATUS_CODE_ERROR: i32 = 2;

/// Returns the body of an OTLP request with these spans of a service.
pub fn encode_spans(service_name: &str, spans: Vec<Span>) -> Vec<u8> {
    let text = |text: &str| AttributeValue::Text(text.to_owned());
    let resource = [
        ("service.name", text(service_name)),
        ("service.version", text(env!("CARGO_PKG_VERSION"))),
    ];
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes: resource.map(key_value).to_vec() }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "riskgate".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                }),
                spans: spans.into_iter().map(span_message).collect(),
            }],
        }],
    };
    request.encode_to_vec()
}

fn span_message(span: Span) -> SpanMessage {
    SpanMessage {
        trace_id: span.trace_id.to_vec(),
        span_id: span.span_id.to_vec(),
        parent_span_id: span.parent_id.map(|id| id.to_vec()).unwrap_or_default(),
        name: span.name,
        kind: match span.kind {
            SpanKind::Server => SPAN_KIND_SERVER,
            SpanKind::Client => SPAN_KIND_CLIENT,
        },
        start_time_unix_nano: span.started_unix_ns,
        end_time_unix_nano: span.ended_unix_ns,
        attributes: span.attributes.into_iter().map(key_value).collect(),
        status: span.is_error.then_some(Status { code: STATUS_CODE_ERROR }),
    }
}

fn key_value((key, value): (&'static str, AttributeValue)) -> KeyValue {
    let value = match value {
        AttributeValue::Text(text) => AnyValueKind::StringValue(text),
        AttributeValue::Number(number) => AnyValueKind::IntValue(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}
