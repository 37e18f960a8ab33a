//! Operations on keys and accounts.

use super::open::Store;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow, RingChanges, RingRows, RingVersion, StoreContents};

impl Store {
    /// The identity of the store and the version of its keys and accounts; cheap enough to be read
    /// several times a second. `None` if the store is not initialized, or has lost its id.
    pub fn ring_version(&mut self) -> Result<Option<RingVersion>, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_version(),
            Store::Redis(store) => store.ring_version(),
        }
    }

    /// All keys and accounts, at least as new as the version that comes with them. `None` if the
    /// store is not initialized.
    pub fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_rows(),
            Store::Redis(store) => store.ring_rows(),
        }
    }

    /// The keys and accounts that changed after version `since`, at least as new as the version
    /// that comes with them. They belong to one history; [`RingChanges::follows`] tells whether it
    /// is the one that the caller knows.
    pub fn ring_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_changes(since),
            Store::Redis(store) => store.ring_changes(since),
        }
    }

    /// Descriptions of entries that riskgate did not write, found among keys and accounts at the
    /// last read. They are ignored otherwise.
    pub fn foreign_entries(&self) -> Vec<String> {
        match self {
            Store::Sqlite(_) => Vec::new(),
            Store::Redis(store) => store.foreign_entries(),
        }
    }

    /// Initializes an empty server as a store. Every operation that writes keys or accounts does so
    /// too.
    pub fn mark_as_store(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(_) => Ok(()),
            Store::Redis(store) => store.mark_as_store(),
        }
    }

    /// Adds all keys or none. A new account is created with its first key. A plan given with a key
    /// becomes its account's plan.
    pub fn add_keys(&mut self, keys: &[(KeyRow, Option<String>)]) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.add_keys(keys),
            Store::Redis(store) => store.add_keys(keys),
        }
    }

    /// Sets the end of a key: `expires_at` if that is earlier than its expiry, and `revoked_at` if
    /// given.
    pub fn set_key_end(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.set_key_end(id, expires_at, revoked_at),
            Store::Redis(store) => store.set_key_end(id, expires_at, revoked_at),
        }
    }

    /// Adds the key `new` of the same account and ends the key `old` at `old_expires_at` at the
    /// latest, in one step. A key that was revoked or has expired by `now` can't be rotated.
    pub fn rotate_key(
        &mut self,
        old: &str,
        new: &KeyRow,
        old_expires_at: i64,
        now: i64,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.rotate_key(old, new, old_expires_at, now),
            Store::Redis(store) => store.rotate_key(old, new, old_expires_at, now),
        }
    }

    /// Undoes a rotation in one step: revokes the key `new`, and resets the expiry of `old` to
    /// `before`, unless it no longer ends at `old_expires_at`.
    pub fn undo_rotation(
        &mut self,
        old: &str,
        new: &str,
        old_expires_at: i64,
        before: Option<i64>,
        now: i64,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.undo_rotation(old, new, old_expires_at, before, now),
            Store::Redis(store) => store.undo_rotation(old, new, old_expires_at, before, now),
        }
    }

    /// Creates an account, or changes the given settings. A limit of `Some(None)` goes back to the
    /// plan's limit.
    pub fn set_account(
        &mut self,
        name: &str,
        plan: Option<&str>,
        limit: Option<Option<MonthlyLimit>>,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.set_account(name, plan, limit),
            Store::Redis(store) => store.set_account(name, plan, limit),
        }
    }

    /// Writes back rows that the store had acknowledged and lost: adds missing keys, gives existing
    /// keys the earlier of both ends, and creates missing accounts. Other rows stay as they are. If
    /// there is nothing to write, the version stays the same.
    ///
    /// Returns how many of `store.wait_replicas` lack the rows. A repeated call counts them again.
    pub fn restore_rows(
        &mut self,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        match self {
            Store::Sqlite(store) => store.restore_rows(keys, accounts),
            Store::Redis(store) => store.restore_rows(keys, accounts),
        }
    }

    /// Fills an empty store with the contents of another. Fails if the store holds keys, accounts
    /// or totals. No gateway reads from it until it is complete.
    pub fn fill_from(&mut self, contents: &StoreContents) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.fill_from(contents),
            Store::Redis(store) => store.fill_from(contents),
        }
    }
}
