//! Reads of keys and accounts.

use super::open::Store;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow, RingChanges, RingRows, RingVersion};

impl Store {
    /// The id of the store, and the version of its keys and accounts. This read is cheap enough to
    /// be made several times a second. `None` if the store is not initialized, or has lost its id.
    pub fn ring_version(&mut self) -> Result<Option<RingVersion>, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_version(),
            Store::Redis(store) => store.ring_version(),
        }
    }

    /// How many keys there are to read. A server may count a few that are not in effect.
    pub fn count_keys(&mut self) -> Result<u64, StoreError> {
        match self {
            Store::Sqlite(store) => store.count_keys(),
            Store::Redis(store) => store.count_keys(),
        }
    }

    /// Reads all keys, the oldest first, all accounts, and the version of the ring. A row may
    /// already be newer than this version, but never older. `None` if the store is not initialized.
    pub fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        let mut rows = match self {
            Store::Sqlite(store) => store.ring_rows(),
            Store::Redis(store) => store.ring_rows(),
        }?;
        if let Some(rows) = &mut rows {
            rows.keys.sort_unstable_by(KeyRow::compare_age);
        }
        Ok(rows)
    }

    /// Reads the keys and accounts that changed after version `after_version`, and the version that
    /// they lead to. A row may already be newer than this version, but never older. If the store
    /// has lost changes, the caller may know another history: see [`RingChanges::follows`].
    pub fn ring_changes(&mut self, after_version: u64) -> Result<RingChanges, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_changes(after_version),
            Store::Redis(store) => store.ring_changes(after_version),
        }
    }

    /// Finds a key by its id. `None` if there is none, or if its row can't be read.
    pub fn find_key(&mut self, id: &str) -> Result<Option<KeyRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.find_key(id),
            Store::Redis(store) => store.find_key(id),
        }
    }

    /// Finds a key by its digest. `None` if there is none, or if its row can't be read.
    pub fn find_key_by_digest(&mut self, digest: &[u8; 32]) -> Result<Option<KeyRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.find_key_by_digest(digest),
            Store::Redis(store) => store.find_key_by_digest(digest),
        }
    }

    /// Finds an account by its name. `None` if there is none, or if its row can't be read.
    pub fn find_account(&mut self, name: &str) -> Result<Option<AccountRow>, StoreError> {
        match self {
            Store::Sqlite(store) => store.find_account(name),
            Store::Redis(store) => store.find_account(name),
        }
    }

    /// Lines about the entries that riskgate did not write and that the latest read found among the
    /// keys and accounts on a server. riskgate ignores such entries. Always empty with SQLite.
    pub fn describe_foreign_entries(&self) -> Vec<String> {
        match self {
            Store::Sqlite(_) => Vec::new(),
            Store::Redis(store) => store.describe_foreign_entries(),
        }
    }
}
