//! End-to-end tests: every test drives the real binary over TCP, with its store on disk.
//!
//! All tests are one binary, so that it is linked once.

#[path = "../support/free_ports.rs"]
mod free_ports;
mod harness;
#[path = "../support/random_numbers.rs"]
mod random_numbers;
#[path = "../support/redis_server.rs"]
mod redis_server;

mod both_paths;
mod one_path;
