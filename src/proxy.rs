//! The Pingora path: the proxy, the reading of request bodies, and the exchange with an upstream
//! server. The fast path uses the same upstream servers.

mod admission;
pub mod gateway;
pub mod request_body;
pub mod upload_watch;
pub mod upstream;
pub mod upstream_service;

pub use admission::BegunUpload;
