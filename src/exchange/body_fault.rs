//! What can be wrong with a request's body.

use std::io;

use pingora::{Error, ErrorType};

use super::response::CHUNK_ERRORS;
use crate::message::chunks::MalformedChunks;
use crate::model::refusal::Refusal;

/// The type of Pingora's error for a body that is longer than `listen.max_body_bytes`.
const TOO_LONG_ERROR: ErrorType = ErrorType::new("RequestBodyTooLong");

/// Why a request's body can't be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The chunks of the body are malformed.
    Malformed,
    /// The body is longer than `listen.max_body_bytes`.
    TooLong,
    /// The body did not arrive in time.
    TooSlow,
}

impl BodyFault {
    /// Returns the fault of the body by an error of the client's connection. `None` if the error is
    /// about the connection: the client has left.
    pub fn find_in(error: &Error) -> Option<BodyFault> {
        let cause = error.root_cause().downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match error.etype() {
            _ if cause.is_some_and(|cause| cause.is::<MalformedChunks>()) => {
                Some(BodyFault::Malformed)
            }
            // In a proxy that mounts the gate, Pingora itself reads the client's chunks.
            kind if CHUNK_ERRORS.contains(kind) => Some(BodyFault::Malformed),
            ErrorType::ReadTimedout => Some(BodyFault::TooSlow),
            kind if *kind == TOO_LONG_ERROR => Some(BodyFault::TooLong),
            _ => None,
        }
    }

    /// The error for a body that is longer than `listen.max_body_bytes`.
    pub fn too_long_error() -> Box<Error> {
        Error::new_down(TOO_LONG_ERROR)
    }

    /// The refusal that the client gets.
    pub fn refusal(self) -> Refusal {
        match self {
            BodyFault::Malformed => Refusal::BadRequest,
            BodyFault::TooLong => Refusal::ContentTooLarge,
            BodyFault::TooSlow => Refusal::RequestTimeout,
        }
    }
}
