//! Client connections: riskgate's own server app in front of Pingora's HTTP proxy.
//!
//! Owns connection limits, the preamble of a connection, deadlines, size limits, and the count of
//! connections and requests in flight. Serves well-formed requests on the fast path, or passes them
//! to Pingora's proxy. Has no rules about keys, routes or the table: the gate has them.

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
