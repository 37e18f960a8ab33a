//! Tests whose requests both data paths serve. The pipeline runs them twice: with the fast path,
//! and with all requests on the Pingora path.

mod browsers;
pub mod decisions;
pub mod faults;
pub mod http;
pub mod operators;
pub mod proxies;
mod quota;
pub mod routes;
mod stores;
