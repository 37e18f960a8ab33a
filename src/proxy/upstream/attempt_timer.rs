//! Counts the attempts to get a response from an upstream server.

use std::net::SocketAddr;
use std::time::Instant;

use crate::exchange::Failure;
use crate::observe::metrics::{AttemptOutcome, AttemptRecord, UpstreamMetrics};

/// An attempt to get a response from a server that is not counted yet.
#[derive(Clone, Copy, Debug)]
pub struct AttemptTimer {
    server: SocketAddr,
    started_at: Instant,
}

impl AttemptTimer {
    /// Starts the time of an attempt that asks this server.
    pub fn start(server: SocketAddr) -> AttemptTimer {
        AttemptTimer { server, started_at: Instant::now() }
    }

    /// Returns when the attempt began.
    pub fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Counts the attempt, which got a response if `failure` is `None`. Returns its record; `None`
    /// if riskgate asked no server.
    pub fn count(
        self,
        failure: Option<Failure>,
        metrics: &UpstreamMetrics,
    ) -> Option<AttemptRecord> {
        let outcome = match failure {
            None => AttemptOutcome::Response,
            Some(Failure::Connect) => AttemptOutcome::ConnectFailed,
            Some(Failure::ClosedEarly { .. }) => AttemptOutcome::ClosedEarly,
            Some(Failure::TimedOut) => AttemptOutcome::TimedOut,
            Some(Failure::BrokenResponse) => AttemptOutcome::BrokenResponse,
            Some(Failure::Client | Failure::RequestBody(_)) => AttemptOutcome::ClientFailed,
            Some(Failure::Internal) => AttemptOutcome::InternalError,
            Some(Failure::NotStarted) => return None,
        };
        let AttemptTimer { server, started_at } = self;
        let attempt = AttemptRecord { server, started_at, duration: started_at.elapsed(), outcome };
        metrics.count_attempt(&attempt);
        Some(attempt)
    }
}
