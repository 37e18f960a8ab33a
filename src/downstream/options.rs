//! The settings of client connections.

use std::time::Duration;

use crate::message::request_head::RequestLimits;
use crate::model::network::Networks;

/// The settings of client connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownstreamOptions {
    /// The longest time from the first byte of a request header to its last. The preamble of a
    /// connection (PROXY header and TLS handshake) has the same time limit.
    pub header_timeout: Duration,
    /// The longest time from a response to the start of the next request on its connection.
    pub keepalive_timeout: Duration,
    /// The longest time for one write of response bytes. If a client reads more slowly, riskgate
    /// ends the response.
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
    /// The proxies whose connections start with a PROXY header. riskgate refuses connections from
    /// other peers. `None` turns the PROXY protocol off.
    pub proxy_protocol_peers: Option<Networks>,
}
