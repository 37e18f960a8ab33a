//! Proxies in front of riskgate, and the upstream servers behind it.

mod client_address;
mod forwarded_for;
pub mod integrations;
mod upstream_names;
