//! The table of edge cases: bytes in; answers, connection, upstream, count and log out.
//!
//! Each file below is a group of cases on one gateway. Every case is held to all five things that
//! [`Case`] names, and every case is known to go red: `tests/breaks` says by which broken guard,
//! and `scripts/breaks` shows it. A red case is told on a line of its own, which that script reads.

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
pub use runner::Group;
