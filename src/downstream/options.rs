//! What the config says of client connections.

use std::time::Duration;

use crate::message::request_head::RequestLimits;
use crate::model::network::Networks;

/// Time and number at the door.
#[derive(Clone, Debug)]
pub struct DownstreamOptions {
    /// For a whole request header, from its first byte to its last; for a TLS handshake and a
    /// PROXY header too.
    pub header_timeout: Duration,
    /// For the next request on a connection to begin.
    pub keepalive_timeout: Duration,
    /// For a part of an answer to be taken by the client.
    pub write_timeout: Duration,
    /// Requests at the same time on one HTTP/2 connection.
    pub max_streams: u32,
    /// Sizes of what comes in.
    pub sizes: RequestLimits,
    /// Whether plain requests are answered on the short way.
    pub fast_path: bool,
    /// Whether HTTP/2 is spoken without TLS too, by prior knowledge.
    pub h2c: bool,
    /// The proxies of which every connection begins with a PROXY header; others are refused.
    pub proxy_protocol: Option<Networks>,
}
