//! The tries of an exchange: when a server is asked once more, and what the client hears when none
//! has answered. One rule, whoever asks.

use crate::model::refusal::Refusal;

/// How many times an exchange may be tried: once, and once more.
pub const MAX_ATTEMPTS: usize = 2;

/// How a try ended without an answer to pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection was made, so no server has seen the request.
    Connect,
    /// The connection ended before a byte of an answer came.
    ClosedEarly {
        /// It was kept from an earlier exchange: its server may have closed it before it saw the
        /// request.
        is_reused: bool,
        /// Asked twice it means what it means asked once (RFC 9110 section 9.2.2), and all of it
        /// can be sent again.
        is_retryable: bool,
    },
    /// An answer had begun, or what came was none.
    ResponseStarted,
}

/// The tries of one exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    started: usize,
    is_connected: bool,
}

impl Attempts {
    /// A server is about to be asked.
    pub fn start_attempt(&mut self) {
        self.started += 1;
        self.is_connected = false;
    }

    /// A server has a connection on which the request is being sent.
    pub fn mark_connected(&mut self) {
        self.is_connected = true;
    }

    /// Whether this one is not the first.
    pub fn is_retry(&self) -> bool {
        self.started > 1
    }

    /// Whether a server is asked once more (RFC 9112 section 9.3.1).
    pub fn may_retry(&self, failure: Failure, is_past_deadline: bool) -> bool {
        let is_safe_to_retry = match failure {
            Failure::Connect => true,
            Failure::ClosedEarly { is_reused, is_retryable } => is_reused && is_retryable,
            Failure::ResponseStarted => false,
        };
        is_safe_to_retry && self.started < MAX_ATTEMPTS && !is_past_deadline
    }

    /// What the client hears when there is no answer to pass on: a server was too slow, or there was
    /// none.
    pub fn refusal(&self, is_past_deadline: bool) -> Refusal {
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
    fn asks_once_more_what_no_server_can_have_answered() {
        let closed_early =
            |is_reused, is_retryable| Failure::ClosedEarly { is_reused, is_retryable };
        let mut tries = Attempts::default();
        tries.start_attempt();
        assert!(!tries.is_retry());
        assert!(tries.may_retry(Failure::Connect, false));
        assert!(tries.may_retry(closed_early(true, true), false));
        for failure in
            [closed_early(false, true), closed_early(true, false), Failure::ResponseStarted]
        {
            assert!(!tries.may_retry(failure, false), "{failure:?}");
        }
        assert!(!tries.may_retry(Failure::Connect, true));
        tries.start_attempt();
        assert!(tries.is_retry());
        assert!(!tries.may_retry(Failure::Connect, false));
        assert!(!tries.may_retry(closed_early(true, true), false));
    }

    #[test]
    fn only_a_server_that_was_asked_can_be_too_slow() {
        let mut tries = Attempts::default();
        assert_eq!(tries.refusal(true), Refusal::UpstreamUnavailable);
        tries.start_attempt();
        tries.mark_connected();
        assert_eq!(tries.refusal(false), Refusal::UpstreamUnavailable);
        assert_eq!(tries.refusal(true), Refusal::UpstreamTimeout);
        tries.start_attempt();
        assert_eq!(tries.refusal(true), Refusal::UpstreamUnavailable);
    }
}
