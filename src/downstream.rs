//! The connection: our own thin server app in front of Pingora's HTTP proxy.
//!
//! Owns what Pingora leaves open: who may connect, what a connection begins with, deadlines,
//! sizes, the grammar of what comes in, and the count of what is in flight. It hands on
//! well-formed requests and knows no key, route or table.

mod app;
mod boxed;
mod client_io;
mod connection_tracker;
mod context;
mod exchange;
pub mod fast_path;
mod fast_path_connection;
mod http1;
mod http2;
mod idle_wait;
mod options;
pub mod preamble;
mod request_io;

pub use app::DownstreamApp;
pub use client_io::ClientIo;
pub use connection_tracker::{ConnectionLimits, ConnectionTracker};
pub use context::ExchangeUpstreams;
pub use options::DownstreamOptions;
