//! The rules of an exchange with an upstream server: which fields riskgate forwards in each
//! direction, when it tries again, and what the client gets if no response can be forwarded.
//!
//! No code in this folder does I/O. The Pingora filters and the fast path report what happened, and
//! do what these rules say.

mod attempts;
mod body_fault;
pub mod forwarding;
mod forwarding_headers;
mod response;

pub use attempts::{Attempts, FailedEnd, Failure, MAX_EXCHANGE_ATTEMPTS};
pub use body_fault::BodyFault;
pub use response::{
    BodyFraming, InformationalResponseCounter, MalformedResponse, ResponseFraming, StatusKind,
    closes_after_response, is_html_type, may_have_framing_fields,
};
