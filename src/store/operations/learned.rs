//! The verbs of what the DNS said.

use super::open::Store;
use crate::store::error::StoreError;
use crate::store::rows::LearnedRow;

impl Store {
    /// Keeps what the DNS said of names, in the place of what it said before; of all names, the
    /// [`MAX_LEARNED`](crate::store::MAX_LEARNED) written last.
    pub fn save_learned(&mut self, rows: &[LearnedRow]) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.learn(rows),
            Store::Redis(store) => store.learn(rows),
        }
    }

    /// Some of what was written after a version, in that order, and the version that it leads to:
    /// to be asked for until that stays as it is. What is older than the version that the caller
    /// knows is another state of the store, which is read from its beginning.
    pub fn learned_since(&mut self, since: u64) -> Result<(Vec<LearnedRow>, u64), StoreError> {
        match self {
            Store::Sqlite(store) => store.learned_since(since),
            Store::Redis(store) => store.learned_since(since),
        }
    }

    /// What the DNS said of a name, as far as it is kept.
    pub fn find_learned(&mut self, name: &str) -> Result<Option<LearnedRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.find_learned(name),
            Store::Redis(store) => store.find_learned(name),
        }
    }
}
