//! riskgate answers "how risky is this e-mail domain?" in front of a signup backend.
//!
//! Read in this order: [`gate`] (the order of the gates), [`quota`] (how calls are charged),
//! [`proxy`] (an exchange with an upstream server). The directories form layers: a directory
//! imports only from layers below its own. `tests/layers.rs` lists them.
//!
//! To mount the gates in your own Pingora proxy, use a [`Gate`]; see `examples/mount.rs`.
//! To run the whole proxy in your own program, use a [`Gateway`].
#![deny(unsafe_code)]
#![warn(missing_docs)]
// `println!` panics if it can't write. Commands write through `cli::output`, the process writes to
// its log.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[doc(hidden)]
pub mod cli;
pub mod config;
pub mod dns;
pub mod downstream;
pub mod feed;
pub mod gate;
pub mod keys;
pub mod message;
pub mod model;
pub mod observe;
pub mod process;
pub mod proxy;
pub mod quota;
pub mod store;
pub mod support;
pub mod table;

pub use gate::{Gate, RequestContext};
pub use pingora;
pub use pingora_proxy;
pub use proxy::gateway::Gateway;
