//! What operators see of riskgate's learning from the DNS.

use crate::model::month::format_rfc3339;

/// The status of learning from the DNS.
#[derive(Clone, Debug, Default)]
pub struct DnsStatus {
    /// Whether riskgate resolves unlisted names.
    pub is_learning: bool,
    /// The number of names with a learned fact.
    pub known_names: usize,
    /// The number of names that wait for resolution.
    pub queued_names: usize,
    /// The number of names that were not queued because the queue was full.
    pub dropped_names: u64,
    /// When riskgate last recorded a reliable answer of a resolver, in seconds since 1970.
    pub last_answered_at: Option<i64>,
    /// Why riskgate learns nothing, or can't share facts through the store; `None` if neither.
    pub problem: Option<String>,
}

impl DnsStatus {
    /// The status as JSON, with times in RFC 3339.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "learning": self.is_learning,
            "known": self.known_names,
            "queue": self.queued_names,
            "dropped": self.dropped_names,
            "answered_at": self.last_answered_at.map(format_rfc3339),
            "problem": self.problem,
        })
    }
}
