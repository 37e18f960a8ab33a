//! The gates in front of the upstream servers, for any Pingora proxy to mount.
//!
//! Owns the order of the gates, and the state by which a request is judged. A [`Gate`] answers a
//! request, refuses it, or lets it pass with a permit. A `Gate` never chooses an upstream server
//! and never talks to one.

pub mod address_facts;
pub mod admission;
mod answered_post;
mod answers;
mod assess;
mod authz;
pub mod authz_rules;
mod beginning;
mod body_reading;
mod body_to_forward;
mod client_address;
mod client_limit;
pub mod decisions;
mod domain_batch;
mod email_verdict;
mod ending;
mod held_bytes;
mod json_body;
mod judge;
mod judged_values;
mod pingora_filters;
mod request_context;
pub mod route;
mod screen;
pub mod screen_rules;
mod session;
mod sign_ups;
mod state;
mod trace_spans;
mod unsent_response;

pub(crate) use answers::GateDecision;
pub(crate) use beginning::{Head, ParsedBytes, PlainHead, RequestParts};
pub(crate) use body_reading::discard_rest_of_body;
pub(crate) use body_to_forward::BodyToForward;
pub use client_address::{ClientAddressRule, ClientAddressSource};
pub use email_verdict::EmailVerdict;
pub(crate) use ending::LoggedHead;
pub use held_bytes::{
    BodyOptions, FAST_PATH_TASK_BYTES, HEADER_FIELD_BYTES, HeldBytes, HeldBytesGuard,
    NO_MEMORY_REFUSAL, PINGORA_TASK_BYTES, waiting_request_bytes,
};
pub(crate) use judge::{AfterGates, Judgement, MatchedRoute, UnchargedRoute};
pub(crate) use pingora_filters::{FailedExchange, classify_error};
pub use request_context::RequestContext;
pub(crate) use request_context::{AttemptRecords, ConnectionFacts, StartTime, unix_seconds_now};
pub use route::CheckAnswer;
pub(crate) use session::{awaits_continue, has_final_response_started, send_continue_if_awaited};
pub use state::{Gate, GateState, ReloadableRules, StartupRules};
pub(crate) use unsent_response::{
    FAST_PATH_RESPONSE_BYTES, ResponsePart, UnsentBytes, UnsentResponse,
};
