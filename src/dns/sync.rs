//! Shares learned facts through the store: with other nodes, and across restarts.
//!
//! If the store is down or denies access, only the sharing stops.

use super::cache::LearnedCache;
use super::fact::is_usable_at;
use crate::store::{DnsFactRow, Store, StoreError};

/// The most facts that wait while the store is down; further facts are not shared.
const MAX_UNSAVED: usize = 10_000;

/// Writes this node's facts to the store, and reads the facts of other nodes.
pub struct LearnedSync {
    store: Store,
    /// The version of the store's facts up to which this node has read.
    version: u64,
    unsaved: Vec<DnsFactRow>,
}

impl LearnedSync {
    /// Shares facts through this store.
    pub fn new(store: Store) -> LearnedSync {
        LearnedSync { store, version: 0, unsaved: Vec::new() }
    }

    /// Queues a fact for the next sync.
    pub fn queue_row(&mut self, learned: DnsFactRow) {
        if self.unsaved.len() < MAX_UNSAVED {
            self.unsaved.push(learned);
        }
    }

    /// Writes the queued facts, and adds the facts of other nodes to the cache. `now` is in seconds
    /// since 1970.
    ///
    /// # Errors
    /// If the store did not answer. The next sync writes the facts that were not written.
    pub fn sync(&mut self, cache: &LearnedCache, now: i64) -> Result<(), StoreError> {
        if !self.unsaved.is_empty() {
            self.store.save_dns_facts(&self.unsaved)?;
            self.unsaved.clear();
        }
        loop {
            let (rows, version) = self.store.dns_facts_since(self.version)?;
            let rows = rows.iter().filter(|row| is_usable_at(row.until, now));
            rows.for_each(|row| cache.insert_fact(row));
            if std::mem::replace(&mut self.version, version) == version {
                return Ok(());
            }
        }
    }
}
