//! End to end: every test drives the real binary over TCP, with its store on disk.
//!
//! One test binary, so that it is linked once. Modules follow the sections of the contract.

mod harness;
#[path = "../parts/redis_server.rs"]
mod redis_server;

mod admin;
mod answers;
mod bad_input;
mod blocked_output;
mod check;
mod check_places;
mod cli;
mod demo_upstream;
mod dns;
mod domains;
mod edge;
mod expectations;
mod failures;
mod faults;
mod faults_clock;
mod faults_disk;
mod faults_limits;
mod faults_memory;
mod faults_read_only;
mod faults_redis;
mod faults_upstream;
mod feeds;
mod forwarded_for;
mod handover;
mod http10;
mod http2;
mod key_history;
mod keys;
mod lane;
mod load;
mod one_account;
mod origins;
mod outage;
mod output;
mod overrides;
mod process;
mod proxies;
mod quota;
mod redis;
mod redis_failover;
mod redis_keys;
mod redis_rights;
mod reload;
mod routes;
mod secrets;
mod slow_readers;
mod sqlite;
mod supervised;
mod syvel_sdk;
mod tls;
mod top;
mod uploads;
mod uploads_http2;
mod upstream;
