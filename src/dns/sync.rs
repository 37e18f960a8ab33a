//! Shares learned facts through the store: with other nodes, and across restarts.
//!
//! If the store is down or denies access, only the sharing stops.

use super::cache::DnsFactCache;
use super::fact::is_usable_at;
use crate::store::{DnsFactRow, Store, StoreError};

/// The most facts that wait while the store is down; further facts are not shared.
const MAX_UNSAVED_FACTS: usize = 10_000;

/// Writes this node's facts to the store, and reads the facts of other nodes.
pub struct DnsFactSync {
    store: Store,
    /// The version of the store's facts up to which this node has read.
    read_version: u64,
    unsaved_facts: Vec<DnsFactRow>,
}

impl DnsFactSync {
    /// Shares facts through this store.
    pub fn new(store: Store) -> DnsFactSync {
        DnsFactSync { store, read_version: 0, unsaved_facts: Vec::new() }
    }

    /// Queues a fact for the next sync.
    pub fn queue_fact(&mut self, learned: DnsFactRow) {
        if self.unsaved_facts.len() < MAX_UNSAVED_FACTS {
            self.unsaved_facts.push(learned);
        }
    }

    /// Writes the queued facts, and adds the facts of other nodes to the cache. `now` is in seconds
    /// since 1970.
    ///
    /// # Errors
    /// If the store did not answer. The next sync writes the facts that were not written.
    pub fn sync(&mut self, cache: &DnsFactCache, now: i64) -> Result<(), StoreError> {
        if !self.unsaved_facts.is_empty() {
            self.store.save_dns_facts(&self.unsaved_facts)?;
            self.unsaved_facts.clear();
        }
        loop {
            let (rows, version) = self.store.dns_facts_since(self.read_version)?;
            let rows = rows.iter().filter(|row| is_usable_at(row.until, now));
            rows.for_each(|row| cache.insert_fact(row));
            if std::mem::replace(&mut self.read_version, version) == version {
                return Ok(());
            }
        }
    }
}
