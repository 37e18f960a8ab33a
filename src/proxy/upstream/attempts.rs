//! The attempts of an exchange: when riskgate retries, and the refusal that the client gets if no
//! server has answered. The Pingora path and the fast path use the same rules.

use crate::model::refusal::Refusal;

/// The most attempts of an exchange: one, and one retry.
pub const MAX_ATTEMPTS: usize = 2;

/// Why an attempt ended without a response that riskgate can forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// No connection could be opened, so no server has seen the request.
    Connect,
    /// The connection ended before a byte of the response arrived.
    ClosedEarly {
        /// The connection was kept from an earlier exchange, so the server may have closed it
        /// before it saw the request.
        is_reused: bool,
        /// The request is idempotent (RFC 9110 section 9.2.2) and can be sent again completely.
        is_retryable: bool,
    },
    /// A response had started, or the bytes that arrived were no valid response.
    ResponseStarted,
}

/// The attempts of one exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    /// The number of attempts that have started.
    count: usize,
    /// Whether the current attempt has a connection to a server.
    is_connected: bool,
}

impl Attempts {
    /// Records that an attempt starts.
    pub fn start_attempt(&mut self) {
        self.count += 1;
        self.is_connected = false;
    }

    /// Records that the attempt has a connection and sends the request.
    pub fn mark_connected(&mut self) {
        self.is_connected = true;
    }

    /// Returns true if the current attempt is not the first.
    pub fn is_retry(&self) -> bool {
        self.count > 1
    }

    /// Returns true if the exchange may be retried (RFC 9112 section 9.3.1): the failure allows it,
    /// an attempt is left, and the deadline has not passed.
    pub fn may_retry(&self, failure: AttemptFailure, is_past_deadline: bool) -> bool {
        let is_safe_to_retry = match failure {
            AttemptFailure::Connect => true,
            AttemptFailure::ClosedEarly { is_reused, is_retryable } => is_reused && is_retryable,
            AttemptFailure::ResponseStarted => false,
        };
        is_safe_to_retry && self.count < MAX_ATTEMPTS && !is_past_deadline
    }

    /// Returns the refusal for an exchange without a response: `UpstreamTimeout` if the current
    /// attempt has a connection and the deadline has passed, otherwise `UpstreamUnavailable`.
    pub fn refusal_without_response(&self, is_past_deadline: bool) -> Refusal {
        match self.is_connected && is_past_deadline {
            true => Refusal::UpstreamTimeout,
            false => Refusal::UpstreamUnavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_safe_failure_is_retried_once_and_others_never() {
        let closed_early =
            |is_reused, is_retryable| AttemptFailure::ClosedEarly { is_reused, is_retryable };
        let mut attempts = Attempts::default();
        attempts.start_attempt();
        assert!(!attempts.is_retry());
        assert!(attempts.may_retry(AttemptFailure::Connect, false));
        assert!(attempts.may_retry(closed_early(true, true), false));
        for failure in
            [closed_early(false, true), closed_early(true, false), AttemptFailure::ResponseStarted]
        {
            assert!(!attempts.may_retry(failure, false), "{failure:?}");
        }
        assert!(!attempts.may_retry(AttemptFailure::Connect, true));
        attempts.start_attempt();
        assert!(attempts.is_retry());
        assert!(!attempts.may_retry(AttemptFailure::Connect, false));
        assert!(!attempts.may_retry(closed_early(true, true), false));
    }

    #[test]
    fn only_a_connected_attempt_gets_upstream_timeout() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.refusal_without_response(true), Refusal::UpstreamUnavailable);
        attempts.start_attempt();
        attempts.mark_connected();
        assert_eq!(attempts.refusal_without_response(false), Refusal::UpstreamUnavailable);
        assert_eq!(attempts.refusal_without_response(true), Refusal::UpstreamTimeout);
        attempts.start_attempt();
        assert_eq!(attempts.refusal_without_response(true), Refusal::UpstreamUnavailable);
    }
}
