//! Tests edge cases of HTTP. A case names the bytes that a client sends, and what must follow: the
//! responses, the state of the connection, the forwarded requests, the counts and the log lines.
//!
//! Each module is a group of cases that share a gateway. The runner checks the five results that
//! [`Case`] names, and prints each failed case on its own line.

mod assertions;
mod authorization;
mod case;
mod forwarded;
mod framing;
mod origins;
mod pipelining;
mod runner;
mod runner_tests;
mod sizes;
mod slow;
mod targets;
mod upstreams;

pub use case::{Case, ForwardedRequest};
pub use runner::CaseGroup;
