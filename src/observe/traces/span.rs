//! A span: one operation of a trace.

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The id of the trace.
    pub trace_id: [u8; 16],
    /// The id of the span.
    pub span_id: [u8; 8],
    /// The id of the span that contains this one; `None` if this is the first of the trace.
    pub parent_id: Option<[u8; 8]>,
    /// The name of the span.
    pub name: String,
    /// The role of riskgate.
    pub kind: SpanKind,
    /// When the operation began, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// When the operation ended, in nanoseconds since 1970.
    pub ended_unix_ns: u64,
    /// Facts about the operation. Their names are those of OpenTelemetry's semantic conventions for
    /// HTTP, or begin with `riskgate.`.
    pub attributes: Vec<Attribute>,
    /// Whether the operation failed.
    pub is_error: bool,
}

/// The role of riskgate in a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// riskgate answers a request.
    Server,
    /// riskgate asks an upstream server.
    Client,
}

/// The name of an attribute, and its value.
pub type Attribute = (&'static str, AttributeValue);

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}
