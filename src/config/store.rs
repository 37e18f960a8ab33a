//! `[store]`: where riskgate keeps keys, counts and the audit.

use std::time::Duration;

use super::settings::Settings;
use crate::store::{RedisOptions, Store, StoreError, StoreUrl};

/// The store and its connection settings.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The address of the store.
    pub url: StoreUrl,
    /// Settings that apply to Redis only.
    pub redis: RedisOptions,
    /// The longest time that a call waits for the store.
    pub deadline: Duration,
    /// The most calls that this process admits without a lease while the store is down.
    pub max_unsettled: u64,
}

impl StoreOptions {
    /// Opens the store. `timeout` limits each operation.
    pub fn open(&self, timeout: Duration) -> Result<Store, StoreError> {
        Store::open(&self.url, &self.redis, timeout)
    }
}

impl Settings {
    /// Reads the store and its connection settings.
    pub fn read_store_options(&mut self) -> StoreOptions {
        let url = self.store_url("store.url", "sqlite:state/riskgate.db");
        let wait_replicas = self.integer("store.wait_replicas", 0..=8, 0) as usize;
        let deadline = match url {
            StoreUrl::Sqlite(_) => Duration::from_secs(1),
            StoreUrl::Redis(_) if wait_replicas == 0 => Duration::from_millis(50),
            // Redis checks only ten times a second whether a WAIT has ended.
            StoreUrl::Redis(_) => Duration::from_millis(500),
        };
        StoreOptions {
            url,
            redis: RedisOptions { wait_replicas, tls_ca: self.path("store.tls_ca") },
            deadline: self.nonzero_duration("store.deadline", deadline),
            max_unsettled: self.integer("store.max_unsettled", 0..=1_000_000_000, 100_000),
        }
    }
}
