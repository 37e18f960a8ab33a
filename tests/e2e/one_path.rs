//! Tests that run once: both data paths share what they test, such as commands, stores and the
//! admin listener, or they run both paths themselves.

mod admin;
mod admin_api;
mod admin_page;
mod admin_shutdown;
mod audit;
mod backup;
mod blocked_output;
mod cli;
mod client_address;
mod clock_trials;
mod config_errors;
mod config_show;
mod demo_upstream;
mod dns_commands;
mod fast_path;
mod feeds;
mod file_reads;
mod file_systems;
mod form_parsers;
mod forwarded_for;
pub mod integrations;
mod key_file;
mod keys;
mod lost_key_changes;
mod overrides;
mod plans;
mod prometheus;
mod redis;
mod redis_acl;
mod redis_data_loss;
mod redis_failover;
mod redis_key_ring;
mod served_store;
mod sign_up_page;
mod sqlite;
mod systemd;
#[cfg(debug_assertions)]
mod test_faults;
mod unwritable_output;
mod upstream_names;
mod webhooks;
