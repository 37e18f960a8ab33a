//! What all connections of one listener share.

use std::sync::Arc;

use super::connection_tracker::ConnectionTracker;
use super::options::DownstreamOptions;
use crate::gate::Gate;
use crate::proxy::upstream::Upstreams;

/// The servers that the lane asks.
#[derive(Clone)]
pub struct ExchangeUpstreams {
    /// The servers.
    pub upstreams: Arc<Upstreams>,
}

/// What serves a connection beside Pingora's proxy.
#[derive(Clone)]
pub(super) struct ConnectionContext {
    pub gate: Gate,
    pub options: DownstreamOptions,
    pub traffic: Arc<ConnectionTracker>,
    /// Servers that the lane asks itself.
    pub upstreams: Option<ExchangeUpstreams>,
}
