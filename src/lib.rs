//! riskgate.
pub mod domain;
pub mod month;
pub mod origin;
pub mod quota;
pub mod refusal;
pub mod store;
pub mod verdict;
