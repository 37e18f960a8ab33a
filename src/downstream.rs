//! Client connections: riskgate's own server app in front of Pingora's HTTP proxy.
//!
//! Owns what Pingora does not do: connection limits, the preamble of a connection, deadlines, size
//! limits, the strict grammar of requests, and the count of connections and requests in flight. It
//! passes well-formed requests to the proxy. It knows no key, route or table.

mod app;
mod boxed;
mod client_close_watch;
mod client_io;
mod connection_tracker;
mod context;
mod exchange_client;
pub mod fast_path;
mod fast_path_connection;
mod fast_path_exchange;
mod forwarded_response;
mod http1;
mod http1_exchange;
mod http2;
mod idle_wait;
mod options;
pub mod preamble;
mod redirect;
mod request_io;
mod small_body;

pub use app::DownstreamApp;
pub use client_io::ClientIo;
pub use connection_tracker::{ConnectionLimits, ConnectionTracker};
pub use options::DownstreamOptions;
