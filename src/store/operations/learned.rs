//! Operations on DNS findings.

use super::open::Store;
use crate::store::error::StoreError;
use crate::store::rows::LearnedRow;

impl Store {
    /// Saves DNS findings and replaces earlier ones of the same names. The store keeps the
    /// [`MAX_LEARNED`](crate::store::MAX_LEARNED) names written last.
    pub fn save_learned(&mut self, rows: &[LearnedRow]) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.save_learned(rows),
            Store::Redis(store) => store.save_learned(rows),
        }
    }

    /// Returns a page of the findings that were written after version `since`, in that order, and
    /// the version that the page leads to. Call it again with that version until it no longer
    /// changes. If `since` is newer than the store, the store was replaced or set back, and the
    /// pages start from its beginning.
    pub fn learned_since(&mut self, since: u64) -> Result<(Vec<LearnedRow>, u64), StoreError> {
        match self {
            Store::Sqlite(store) => store.learned_since(since),
            Store::Redis(store) => store.learned_since(since),
        }
    }

    /// The DNS finding of a name, if the store keeps one.
    pub fn find_learned(&mut self, name: &str) -> Result<Option<LearnedRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.find_learned(name),
            Store::Redis(store) => store.find_learned(name),
        }
    }
}
