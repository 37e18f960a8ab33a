//! Counts the attempts to get a response from an upstream server.

use std::net::SocketAddr;
use std::time::Instant;

use crate::exchange::{Attempts, Failure};
use crate::gate::AttemptRecords;
use crate::observe::metrics::{AttemptOutcome, AttemptRecord, UpstreamMetrics};

/// The attempts of one exchange. riskgate counts each attempt when it ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountedAttempts {
    attempts: Attempts,
    /// The server that the current attempt asks, and since when; `None` if no attempt is under way.
    asked: Option<(SocketAddr, Instant)>,
}

impl CountedAttempts {
    /// Records that an attempt starts.
    pub fn start_attempt(&mut self) {
        self.attempts.start_attempt();
    }

    /// Records that the attempt asks this server.
    pub fn mark_asked(&mut self, server: SocketAddr) {
        self.asked = Some((server, Instant::now()));
    }

    /// Since when the current attempt asks its server.
    pub fn asked_since(&self) -> Option<Instant> {
        self.asked.map(|(_, since)| since)
    }

    /// See [`Attempts::mark_connected`].
    pub fn mark_connected(&mut self) {
        self.attempts.mark_connected();
    }

    /// See [`Attempts::is_retry`].
    pub fn is_retry(&self) -> bool {
        self.attempts.is_retry()
    }

    /// The number of attempts and the state of the last one.
    pub fn attempts(&self) -> Attempts {
        self.attempts
    }

    /// Counts an attempt that got a response.
    pub fn end_with_response(&mut self, metrics: &UpstreamMetrics, ended: &mut AttemptRecords) {
        self.count_ended_attempt(AttemptOutcome::Response, metrics, ended);
    }

    /// Counts an attempt that failed. If another attempt follows, returns true and counts the
    /// retry.
    pub fn end_with_failure(
        &mut self,
        failure: Failure,
        is_past_deadline: bool,
        metrics: &UpstreamMetrics,
        ended: &mut AttemptRecords,
    ) -> bool {
        let outcome = match failure {
            Failure::Connect => Some(AttemptOutcome::ConnectFailed),
            Failure::ClosedEarly { .. } => Some(AttemptOutcome::ClosedEarly),
            Failure::TimedOut => Some(AttemptOutcome::TimedOut),
            Failure::BrokenResponse(_) => Some(AttemptOutcome::BrokenResponse),
            Failure::Client | Failure::RequestBody(_) => Some(AttemptOutcome::ClientFailed),
            Failure::Internal => Some(AttemptOutcome::InternalError),
            Failure::NotStarted => None,
        };
        if let Some(outcome) = outcome {
            self.count_ended_attempt(outcome, metrics, ended);
        }
        let may_retry = self.attempts.may_retry(failure, is_past_deadline);
        if may_retry {
            metrics.retries.inc();
        }
        may_retry
    }

    fn count_ended_attempt(
        &mut self,
        outcome: AttemptOutcome,
        metrics: &UpstreamMetrics,
        ended: &mut AttemptRecords,
    ) {
        if let Some((server, started_at)) = self.asked.take() {
            let duration = started_at.elapsed();
            let attempt = AttemptRecord { server, started_at, duration, outcome };
            metrics.count_attempt(&attempt);
            ended.extend([attempt]);
        }
    }
}
