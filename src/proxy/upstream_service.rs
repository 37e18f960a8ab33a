//! The service that watches the upstream servers while riskgate runs.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;

use super::upstream::Upstreams;
use crate::gate::GateState;

/// Checks the health of the upstream servers, and resolves their names again.
pub struct UpstreamWatchService {
    upstreams: Arc<Upstreams>,
    state: Arc<GateState>,
}

impl UpstreamWatchService {
    /// Creates the service. The rules in `state` say whether a request may need a server.
    pub fn new(upstreams: Arc<Upstreams>, state: Arc<GateState>) -> UpstreamWatchService {
        UpstreamWatchService { upstreams, state }
    }
}

#[async_trait]
impl BackgroundService for UpstreamWatchService {
    async fn start(&self, shutdown: ShutdownWatch) {
        let is_needed = || self.state.reloadable_rules.peek().may_need_upstream();
        self.upstreams.watch_servers(is_needed, shutdown).await;
    }
}
