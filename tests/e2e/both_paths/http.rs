//! HTTP/1 and HTTP/2 as such: framing, limits, slow clients, TLS.

mod early_refusals;
mod edge_cases;
mod expectations;
mod http1_0;
mod http2;
mod http2_floods;
mod https_only;
mod request_bodies;
pub mod responses;
mod route_deadlines;
mod slow_clients;
mod slow_http2_readers;
mod slow_readers;
mod tls;
pub mod uploads;
mod uploads_http2;
