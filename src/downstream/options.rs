//! The settings of client connections.

use std::time::Duration;

use crate::message::request_head::RequestLimits;
use crate::model::network::Networks;

/// The settings of client connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownstreamOptions {
    /// The time for a whole request header, from its first byte to its last. It also limits the
    /// preamble of a connection: the PROXY header and the TLS handshake.
    pub header_timeout: Duration,
    /// The time for which an idle connection is kept: the next request must start within this time.
    pub keepalive_timeout: Duration,
    /// The time for one write of response bytes to complete. A client that reads too slowly for
    /// that loses its connection.
    pub write_timeout: Duration,
    /// The most concurrent requests on one HTTP/2 connection.
    pub max_streams: u32,
    /// The size limits of requests.
    pub request_limits: RequestLimits,
    /// Whether the fast path serves plain requests: GET, HEAD or OPTIONS without a body, and
    /// requests for an upstream server with a short body.
    pub is_fast_path_on: bool,
    /// Whether riskgate accepts HTTP/2 without TLS, with prior knowledge.
    pub accepts_h2c: bool,
    /// The proxies whose connections start with a PROXY header; connections from other peers are
    /// refused. `None` turns the PROXY protocol off.
    pub proxy_protocol_peers: Option<Networks>,
}
