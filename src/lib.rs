//! riskgate.
pub mod access_log;
pub mod domain;
pub mod keys;
pub mod live;
pub mod metrics;
pub mod month;
pub mod origin;
pub mod quota;
pub mod refusal;
pub mod store;
pub mod top;
pub mod verdict;
