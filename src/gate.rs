//! The gates that every request passes, for any Pingora proxy to mount.
//!
//! Owns the order in which a request is judged, and the state that it is judged by. A [`Gate`]
//! answers requests for riskgate's own routes, refuses requests, or lets them pass with a permit.
//! It never chooses an upstream server and never talks to one.

pub mod admission;
mod answers;
mod authz;
pub mod authz_rules;
mod batch_permits;
mod charging;
mod client_address;
mod client_limit;
mod domain_batch;
mod email_verdict;
mod header_values;
mod judge;
mod log_record;
mod pingora_filters;
mod read_request;
mod request_context;
mod request_parts;
pub mod route;
mod screen;
pub mod screen_rules;
mod session;
mod state;
mod trace_spans;

pub(crate) use answers::Decision;
pub use batch_permits::BatchPermits;
pub use client_address::{ClientAddressRule, ClientAddressSource};
pub use email_verdict::EmailVerdict;
pub(crate) use header_values::{iter_values, iter_values_in_bytes};
pub use judge::Gate;
pub(crate) use judge::{Judgement, MatchedRoute};
pub(crate) use log_record::ConnectionFacts;
pub(crate) use pingora_filters::{FailedExchange, classify_error};
pub use request_context::RequestContext;
pub(crate) use request_context::{StartTime, unix_seconds_now};
pub(crate) use request_parts::RequestParts;
pub use route::CheckAnswer;
pub(crate) use session::{has_final_response_started, tls_version_name};
pub use state::{GateState, ReloadableRules, StartupRules};
