//! The exchange with an upstream server, for a request that passed the gates: the proxy on the
//! Pingora path, the reading of request bodies, and the upstream servers.

mod admission;
pub mod gateway;
pub mod request_body;
pub mod upload_watch;
pub mod upstream;
pub mod upstream_service;
