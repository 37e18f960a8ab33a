//! The state that all connections of one listener share.

use std::sync::Arc;

use super::connection_tracker::ConnectionTracker;
use super::options::DownstreamOptions;
use crate::gate::Gate;
use crate::proxy::upstream::Upstreams;

/// The upstream servers to which the fast path may forward requests.
#[derive(Clone)]
pub struct FastPathUpstreams {
    /// The upstream servers.
    pub upstreams: Arc<Upstreams>,
}

/// The state that all connections of one listener share, beside Pingora's proxy.
#[derive(Clone)]
pub(super) struct ListenerContext {
    pub gate: Gate,
    pub options: DownstreamOptions,
    pub tracker: Arc<ConnectionTracker>,
    /// The upstream servers to which the fast path may forward; if `None`, the Pingora path
    /// forwards every request.
    pub upstreams: Option<FastPathUpstreams>,
}
