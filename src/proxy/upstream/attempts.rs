//! The tries of an exchange: when a server is asked once more, and what the client hears when none
//! has answered. One rule, whoever asks.

use crate::model::refusal::Refusal;

/// How many times an exchange may be tried: once, and once more.
pub const MAX_TRIES: usize = 2;

/// How a try ended without an answer to pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection was made, so no server has seen the request.
    Unconnected,
    /// The connection ended before a byte of an answer came.
    Unanswered {
        /// It was kept from an earlier exchange: its server may have closed it before it saw the
        /// request.
        is_reused: bool,
        /// Asked twice it means what it means asked once (RFC 9110 section 9.2.2), and all of it
        /// can be sent again.
        is_repeatable: bool,
    },
    /// An answer had begun, or what came was none.
    Begun,
}

/// The tries of one exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    begun: usize,
    is_connected: bool,
}

impl Tries {
    /// A server is about to be asked.
    pub fn begin(&mut self) {
        self.begun += 1;
        self.is_connected = false;
    }

    /// A server has a connection on which the request is being sent.
    pub fn connected(&mut self) {
        self.is_connected = true;
    }

    /// Whether this one is not the first.
    pub fn is_second(&self) -> bool {
        self.begun > 1
    }

    /// Whether a server is asked once more (RFC 9112 section 9.3.1).
    pub fn may_repeat(&self, failure: Failure, is_late: bool) -> bool {
        let is_unseen = match failure {
            Failure::Unconnected => true,
            Failure::Unanswered { is_reused, is_repeatable } => is_reused && is_repeatable,
            Failure::Begun => false,
        };
        is_unseen && self.begun < MAX_TRIES && !is_late
    }

    /// What the client hears when there is no answer to pass on: a server was too slow, or there was
    /// none.
    pub fn refusal(&self, is_late: bool) -> Refusal {
        match self.is_connected && is_late {
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
        let unanswered =
            |is_reused, is_repeatable| Failure::Unanswered { is_reused, is_repeatable };
        let mut tries = Tries::default();
        tries.begin();
        assert!(!tries.is_second());
        assert!(tries.may_repeat(Failure::Unconnected, false));
        assert!(tries.may_repeat(unanswered(true, true), false));
        for failure in [unanswered(false, true), unanswered(true, false), Failure::Begun] {
            assert!(!tries.may_repeat(failure, false), "{failure:?}");
        }
        assert!(!tries.may_repeat(Failure::Unconnected, true));
        tries.begin();
        assert!(tries.is_second());
        assert!(!tries.may_repeat(Failure::Unconnected, false));
        assert!(!tries.may_repeat(unanswered(true, true), false));
    }

    #[test]
    fn only_a_server_that_was_asked_can_be_too_slow() {
        let mut tries = Tries::default();
        assert_eq!(tries.refusal(true), Refusal::UpstreamUnavailable);
        tries.begin();
        tries.connected();
        assert_eq!(tries.refusal(false), Refusal::UpstreamUnavailable);
        assert_eq!(tries.refusal(true), Refusal::UpstreamTimeout);
        tries.begin();
        assert_eq!(tries.refusal(true), Refusal::UpstreamUnavailable);
    }
}
