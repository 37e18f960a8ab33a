//! riskgate answers "how risky is this e-mail domain?" in front of a signup backend.
//!
//! Read in this order: [`gateway`] (the table of contents of a request), [`gate`] (the order of
//! the gates), [`admission`] (who may pass), [`quota`] (what may be spent). Rooms lie on floors,
//! and a floor imports only from below: words, state, request, process, hand.
//!
//! To mount the gates in a Pingora proxy of your own, take a [`Gate`]; see `examples/mount.rs`.
//! To run the whole proxy from a program of your own, take a [`Gateway`].
#![deny(unsafe_code)]
// `println!` panics if it can't write; commands speak by `cli::output`, the process by its log.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

// Floor 0, the words: values without I/O, clock or log.
pub mod domain;
pub mod month;
pub mod network;
pub mod origin;
pub mod refusal;
pub mod verdict;

// Floor 1, the state: no Pingora, no HTTP, no config.
pub mod access_log;
pub mod dns;
pub mod error_log;
pub mod feed;
pub mod keys;
pub mod live;
pub mod metrics;
pub mod quota;
pub mod regular_file;
pub mod request_id;
pub mod shares;
pub mod store;
pub mod table;
pub mod tls;
pub mod top;

// Floor 2, the request.
pub mod admission;
pub mod body;
pub mod door;
pub mod gate;
pub mod gateway;
pub mod head;
pub mod lane;
pub mod reply;
pub mod route;
pub mod upstream;

// Floor 3, the process.
pub mod admin;
pub mod config;
pub mod handover;
pub mod listen;
pub mod reload;
pub mod server;
pub mod supervisor;

// Floor 4, the hand.
#[doc(hidden)]
pub mod cli;

pub use gate::{Gate, Visit};
pub use gateway::Gateway;
