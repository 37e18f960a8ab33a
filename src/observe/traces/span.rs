//! A span: one operation of a trace.

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The id of its trace.
    pub trace_id: [u8; 16],
    /// Its own id.
    pub span_id: [u8; 8],
    /// The id of the span that it is a part of.
    pub parent_id: Option<[u8; 8]>,
    /// Its name.
    pub name: String,
    /// The role of riskgate.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// When it ended, in nanoseconds since 1970.
    pub ended_unix_ns: u64,
    /// Facts about it. Their names are those of OpenTelemetry's semantic conventions for HTTP, or
    /// begin with `riskgate.`.
    pub attributes: Vec<Attribute>,
    /// Whether it failed.
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
