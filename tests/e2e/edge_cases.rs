//! The table of edge cases: bytes in; responses, connection, forwarded requests, counts and log
//! lines out.
//!
//! Each file below is a group of cases on one gateway. The runner makes the five checks that
//! [`Case`] names for every case, and prints each failed case on its own line.

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
#[cfg(riskgate_test_faults)]
mod test_faults;
mod upstreams;

pub use case::{Case, ForwardedRequest};
pub use runner::Group;
