//! The SQLite file and the Redis server: losses, failovers, backups, and which store is served.

mod store_outage;
