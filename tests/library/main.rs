//! Tests of riskgate as a library: in a program that mounts it, and with a late or a panicking
//! part.

#[path = "../support/free_ports.rs"]
mod free_ports;

mod deadline;
mod mount;
mod mount_daemon;
mod mount_forms;
mod mount_in_process;
mod mount_requests;
mod panic;
