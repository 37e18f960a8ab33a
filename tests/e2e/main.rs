//! End to end: every test drives the real binary over TCP, with its store on disk.
//!
//! One test binary, so that it is linked once. Modules follow the sections of the contract.

mod harness;

mod admin;
mod answers;
mod bad_input;
mod cli;
mod domains;
mod failures;
mod faults;
mod keys;
mod load;
mod origins;
mod outage;
mod process;
mod quota;
mod reload;
mod routes;
mod top;
mod upstream;
