//! The store for several nodes: a Redis or Valkey server, or a Redis Cluster.
//!
//! Owns the connections, their timeouts and the names of all Redis keys. An operation that must be
//! atomic is one Lua script. All Redis keys that a script touches share a hash tag, so that a
//! Cluster keeps them in one hash slot. The exception is `fill_ring.lua`, which ends a copy: on a
//! server, it touches Redis keys of many hash tags.

mod audit;
mod cluster;
pub(super) mod connection;
mod connector;
mod daily_usage;
mod deployment;
mod exchange;
mod expired_rows;
mod fill;
mod foreign;
mod import;
mod inbox_secret;
mod incarnation;
mod key_names;
mod learned;
mod ledger;
mod link;
mod month;
pub(super) mod options;
mod overrides;
mod protocol_probe;
mod quota_events;
mod rate_charge_state;
pub(super) mod rates;
mod reply;
mod ring;
mod ring_state;
pub(super) mod ring_store;
mod rotate;
mod rows;
mod scan;
mod scripts;
mod sentinels;
mod sign_ups;
mod store_of_link;
mod top;
mod write;
mod write_back;

#[cfg(test)]
mod tests;
