//! The settings of client connections.

use std::time::Duration;

use crate::message::request_head::RequestLimits;
use crate::model::network::Networks;

/// The settings of client connections.
#[derive(Clone, Debug)]
pub struct DownstreamOptions {
    /// The time for a whole request header, from its first byte to its last; also for a TLS
    /// handshake and a PROXY header.
    pub header_timeout: Duration,
    /// The time for the next request on a connection to start.
    pub keepalive_timeout: Duration,
    /// The time for the client to take a part of a response.
    pub write_timeout: Duration,
    /// The most concurrent requests on one HTTP/2 connection.
    pub max_streams: u32,
    /// The size limits of requests.
    pub sizes: RequestLimits,
    /// Whether the fast path serves plain requests.
    pub fast_path: bool,
    /// Whether riskgate accepts HTTP/2 without TLS, with prior knowledge.
    pub h2c: bool,
    /// The proxies whose connections start with a PROXY header; connections from other peers are
    /// refused. `None` turns the PROXY protocol off.
    pub proxy_protocol: Option<Networks>,
}
