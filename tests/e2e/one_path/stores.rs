//! The SQLite file and the Redis server: losses, failovers, backups, and which store is served.

mod backup;
mod lost_key_changes;
mod one_config;
pub mod redis;
mod redis_acl;
mod redis_cluster;
mod redis_data_loss;
mod redis_failover;
mod redis_key_ring;
mod served_store;
mod sqlite;
mod store_check;
