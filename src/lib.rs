//! riskgate.
pub mod domain;
pub mod month;
pub mod origin;
pub mod refusal;
pub mod verdict;
