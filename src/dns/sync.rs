//! Shares learned facts through the store: with other nodes, and across restarts.
//!
//! If the store is down or denies access, only the sharing stops.

use super::cache::DnsFactCache;
use super::fact::is_before_stale_limit;
use crate::store::{Store, StoreError};
use crate::table::Table;

/// Exchanges facts with the store: writes those of this node, and reads those of other nodes.
pub struct DnsFactSync {
    store: Store,
    /// This node has read the store's facts up to this version.
    last_read_version: u64,
}

impl DnsFactSync {
    /// Shares facts through this store.
    pub fn new(store: Store) -> DnsFactSync {
        DnsFactSync { store, last_read_version: 0 }
    }

    /// Writes the facts of the cache that wait to be written, and adds the facts of other nodes to
    /// the cache. `table` tells which facts are about real names. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// If the store fails. The cache then keeps the facts that were not written.
    pub fn sync_with_store(
        &mut self,
        cache: &DnsFactCache,
        table: &Table,
        now: i64,
    ) -> Result<(), StoreError> {
        let unsaved = cache.take_unsaved_facts(now);
        if !unsaved.is_empty()
            && let Err(error) = self.store.save_dns_facts(&unsaved)
        {
            cache.put_back_unsaved_facts(unsaved);
            return Err(error);
        }
        loop {
            let (rows, version) = self.store.read_dns_facts_page(self.last_read_version)?;
            let rows = rows.iter().filter(|row| is_before_stale_limit(row.expires_at, now));
            rows.for_each(|row| cache.insert_fact(row, table, now));
            if std::mem::replace(&mut self.last_read_version, version) == version {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
