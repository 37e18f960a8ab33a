//! The attempts of an exchange: when riskgate tries again, and what follows a failure.

use super::body_fault::BodyFault;
use super::response::MalformedResponse;
use crate::model::refusal::Refusal;

/// The most attempts of an exchange: one, and one retry.
pub const MAX_EXCHANGE_ATTEMPTS: usize = 2;

/// What failed in an attempt of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The attempt asked no server, for example because too many exchanges are under way.
    NotStarted,
    /// No connection could be opened, so the attempt showed no server the request.
    Connect,
    /// The connection ended before a byte of the response arrived.
    ClosedEarly {
        /// Whether the connection was kept from an earlier exchange. Then the server may have
        /// closed it before it saw the request.
        is_reused: bool,
        /// Whether the request is idempotent (RFC 9110 section 9.2.2), and riskgate still has its
        /// whole body.
        is_repeatable: bool,
    },
    /// The server was too slow.
    TimedOut,
    /// The connection ended within a response, or the bytes that arrived were no valid response.
    BrokenResponse(MalformedResponse),
    /// The client left, or did not read the response.
    Client,
    /// The rest of the client's body can't be forwarded.
    RequestBody(BodyFault),
    /// A fault of riskgate itself.
    Internal,
}

/// How an exchange without a whole response ends for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailedEnd {
    /// The client gets this refusal.
    Refuse(Refusal),
    /// The client gets nothing more. Either the client has left, or it has a part of the response,
    /// which must not look complete.
    Abort,
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
    /// Makes the state of an exchange whose last attempt has a connection to a server.
    pub fn with_connected_last_attempt() -> Attempts {
        Attempts { count: MAX_EXCHANGE_ATTEMPTS, is_connected: true }
    }

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

    /// Returns true if riskgate tries again after this failure. These conditions must hold:
    /// - Either no connection was opened, or the server closed a reused connection before it
    ///   answered a request that is repeatable (RFC 9112 section 9.3.1).
    /// - An attempt is left, and the deadline has not passed.
    pub fn may_retry(&self, failure: Failure, is_past_deadline: bool) -> bool {
        let is_safe_to_retry = match failure {
            Failure::Connect => true,
            Failure::ClosedEarly { is_reused, is_repeatable } => is_reused && is_repeatable,
            Failure::NotStarted
            | Failure::TimedOut
            | Failure::BrokenResponse(_)
            | Failure::Client
            | Failure::RequestBody(_)
            | Failure::Internal => false,
        };
        is_safe_to_retry && self.count < MAX_EXCHANGE_ATTEMPTS && !is_past_deadline
    }

    /// Returns how the exchange ends after a failure without a retry. `has_response_started` means
    /// that riskgate has begun to forward the final response.
    pub fn end_after(
        &self,
        failure: Failure,
        is_past_deadline: bool,
        has_response_started: bool,
    ) -> FailedEnd {
        let is_too_late = is_past_deadline || failure == Failure::TimedOut;
        match failure {
            _ if has_response_started => FailedEnd::Abort,
            Failure::Client => FailedEnd::Abort,
            Failure::RequestBody(fault) => FailedEnd::Refuse(fault.refusal()),
            Failure::Internal => FailedEnd::Refuse(Refusal::Internal),
            _ if self.is_connected && is_too_late => FailedEnd::Refuse(Refusal::UpstreamTimeout),
            _ => FailedEnd::Refuse(Refusal::UpstreamUnavailable),
        }
    }
}

#[cfg(test)]
mod tests;
