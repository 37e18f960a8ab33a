//! The state that all connections of one listener share.

use std::sync::Arc;

use super::connection_tracker::ConnectionTracker;
use super::options::DownstreamOptions;
use crate::gate::Gate;
use crate::proxy::upstream::Upstreams;

/// The state that all connections of one listener share, apart from Pingora's proxy.
#[derive(Clone)]
pub(super) struct ListenerContext {
    pub gate: Gate,
    pub options: DownstreamOptions,
    pub tracker: Arc<ConnectionTracker>,
    /// The servers to which the fast path forwards requests.
    pub upstreams: Arc<Upstreams>,
}
