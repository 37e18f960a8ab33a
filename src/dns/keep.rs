//! What the store keeps of what was learned: over restarts, and for other nodes.
//!
//! A store that is down, or that gives no right to it, costs the sharing and nothing else.

use super::{Memory, still_counts};
use crate::store::{LearnedRow, Store, StoreError};

/// What waits for a store that is down.
const MOST_UNSAVED: usize = 10_000;

/// Exchanges with the store.
pub struct Keeper {
    store: Store,
    /// What was read or written up to here is known.
    version: u64,
    unsaved: Vec<LearnedRow>,
}

impl Keeper {
    /// Keeps in this store.
    pub fn new(store: Store) -> Keeper {
        Keeper { store, version: 0, unsaved: Vec::new() }
    }

    /// Has this written with the next exchange.
    pub fn add(&mut self, learned: LearnedRow) {
        if self.unsaved.len() < MOST_UNSAVED {
            self.unsaved.push(learned);
        }
    }

    /// Begins anew: everything that the store keeps is read.
    pub fn forget(&mut self) {
        (self.version, self.unsaved) = (0, Vec::new());
    }

    /// Writes what was learned here, and takes over what other nodes have learned. `now` is in seconds
    /// since 1970.
    ///
    /// # Errors
    /// If the store did not answer; what was not written is written the next time.
    pub fn exchange(&mut self, memory: &Memory, now: i64) -> Result<(), StoreError> {
        if !self.unsaved.is_empty() {
            self.store.learn(&self.unsaved)?;
            self.unsaved.clear();
        }
        loop {
            let (rows, version) = self.store.learned_since(self.version)?;
            let rows = rows.iter().filter(|row| still_counts(row, now));
            rows.for_each(|row| memory.learn(row));
            if std::mem::replace(&mut self.version, version) == version {
                return Ok(());
            }
        }
    }
}
