//! Proxies in front of riskgate, and the upstream servers behind it.

mod authz;
mod proxy_protocol;
pub mod proxying;
mod upstream_failures;
mod upstream_health;
