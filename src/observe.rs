//! What operators see of a running gateway: logs, metrics, traces, the most frequently flagged
//! domains, and the screened forms.

pub mod access_log;
pub mod latest_forms;
pub mod metrics;
pub mod process_log;
pub mod redaction;
pub mod screening_counts;
pub mod top_domains;
pub mod traces;
