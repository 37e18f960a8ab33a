//! How the learning stands.

use crate::model::month::format_rfc3339;

/// How the learning stands.
#[derive(Clone, Debug, Default)]
pub struct DnsStatus {
    /// Whether names are asked.
    pub is_learning: bool,
    /// Names of which something is known.
    pub known: usize,
    /// Names waiting for a DNS resolution.
    pub queue: usize,
    /// Names that were not taken, since too many waited.
    pub dropped: u64,
    /// When a resolver answered last, in seconds since 1970.
    pub answered_at: Option<i64>,
    /// Why nothing is learned, or not shared.
    pub problem: Option<String>,
}

impl DnsStatus {
    /// As JSON, for people and programs; moments in RFC 3339.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "learning": self.is_learning,
            "known": self.known,
            "queue": self.queue,
            "dropped": self.dropped,
            "answered_at": self.answered_at.map(format_rfc3339),
            "problem": self.problem,
        })
    }
}
