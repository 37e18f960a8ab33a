//! What operators see of a running gateway: logs, metrics, and the most frequently flagged domains.

pub mod access_log;
pub mod metrics;
pub mod process_log;
pub mod top_domains;
