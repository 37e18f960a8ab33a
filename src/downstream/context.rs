//! What all connections of one listener share.

use std::sync::Arc;

use super::connection_tracker::Traffic;
use super::options::DoorOptions;
use crate::gate::Gate;
use crate::proxy::upstream::Upstreams;

/// The servers that the lane asks.
#[derive(Clone)]
pub struct Servers {
    /// The servers.
    pub upstreams: Arc<Upstreams>,
}

/// What serves a connection beside Pingora's proxy.
#[derive(Clone)]
pub(super) struct ConnectionContext {
    pub gate: Gate,
    pub options: DoorOptions,
    pub traffic: Arc<Traffic>,
    /// Servers that the lane asks itself.
    pub servers: Option<Servers>,
}
