//! End-to-end tests: every test drives the real binary over TCP, with its store on disk.
//!
//! All tests are one binary, so that it is linked once.

mod harness;
#[path = "../support/redis_server.rs"]
mod redis_server;

mod admin;
mod blocked_output;
mod check;
mod check_paths;
mod cli;
mod concurrency;
mod config_errors;
mod demo_upstream;
mod dns;
mod dns_commands;
mod domain_lookup;
mod edge_cases;
mod expectations;
mod fast_path;
mod faults_clock;
mod faults_disk;
mod faults_limits;
mod faults_memory;
mod faults_one_account;
mod faults_read_only;
mod faults_redis;
mod faults_upstream;
mod feeds;
mod forwarded_for;
mod http1_0;
mod http2;
mod key_file;
mod keys;
mod lost_key_changes;
mod origins;
mod overrides;
mod process;
mod proxy_protocol;
mod proxying;
mod quota;
mod redis;
mod redis_acl;
mod redis_data_loss;
mod redis_failover;
mod redis_key_ring;
mod reload;
mod reload_load;
mod responses;
mod routes;
mod secrets;
mod slow_clients;
mod slow_readers;
mod sqlite;
mod store_outage;
mod systemd;
mod syvel_sdk;
mod tls;
mod top_domains;
mod unwritable_output;
mod upgrade;
mod uploads;
mod uploads_http2;
mod upstream_failures;
