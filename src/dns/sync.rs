//! What the store keeps of what was learned: over restarts, and for other nodes.
//!
//! A store that is down, or that gives no right to it, costs the sharing and nothing else.

use super::cache::LearnedCache;
use super::fact::is_usable_at;
use crate::store::{LearnedRow, Store, StoreError};

/// What waits for a store that is down.
const MAX_UNSAVED: usize = 10_000;

/// Writes to the store what this node learned, and reads what others did.
pub struct LearnedSync {
    store: Store,
    /// What was read or written up to here is known.
    version: u64,
    unsaved: Vec<LearnedRow>,
}

impl LearnedSync {
    /// Keeps in this store.
    pub fn new(store: Store) -> LearnedSync {
        LearnedSync { store, version: 0, unsaved: Vec::new() }
    }

    /// Has this written with the next sync.
    pub fn queue_row(&mut self, learned: LearnedRow) {
        if self.unsaved.len() < MAX_UNSAVED {
            self.unsaved.push(learned);
        }
    }

    /// Writes what was learned here, and takes over what other nodes have learned. `now` is in seconds
    /// since 1970.
    ///
    /// # Errors
    /// If the store did not answer; what was not written is written the next time.
    pub fn sync(&mut self, cache: &LearnedCache, now: i64) -> Result<(), StoreError> {
        if !self.unsaved.is_empty() {
            self.store.save_learned(&self.unsaved)?;
            self.unsaved.clear();
        }
        loop {
            let (rows, version) = self.store.learned_since(self.version)?;
            let rows = rows.iter().filter(|row| is_usable_at(row.until, now));
            rows.for_each(|row| cache.insert_fact(row));
            if std::mem::replace(&mut self.version, version) == version {
                return Ok(());
            }
        }
    }
}
