//! Operations on keys and accounts.

use super::open::Store;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow, RingChanges, RingRows, RingVersion, StoreContents};

impl Store {
    /// The id of the store, and the version of its keys and accounts. This read is cheap enough to
    /// be made several times a second. `None` if the store is not initialized, or has lost its id.
    pub fn ring_version(&mut self) -> Result<Option<RingVersion>, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_version(),
            Store::Redis(store) => store.ring_version(),
        }
    }

    /// Reads all keys and accounts, and the version of the ring. A row may already be newer than
    /// this version, but never older. `None` if the store is not initialized.
    pub fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_rows(),
            Store::Redis(store) => store.ring_rows(),
        }
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

    /// Lines about the entries that riskgate did not write and that the latest read found among the
    /// keys and accounts on a server. riskgate ignores such entries. Always empty with SQLite.
    pub fn describe_foreign_entries(&self) -> Vec<String> {
        match self {
            Store::Sqlite(_) => Vec::new(),
            Store::Redis(store) => store.describe_foreign_entries(),
        }
    }

    /// Gives an empty server a store id and a version, so that it is a store without keys. Does
    /// nothing to a store. Every operation that writes keys or accounts does the same first.
    pub fn mark_as_store(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(_) => Ok(()),
            Store::Redis(store) => store.mark_as_store(),
        }
    }

    /// Adds all keys or none. Creates the accounts that don't exist yet. If a plan is given with a
    /// key, it becomes the plan of the key's account.
    pub fn add_keys(
        &mut self,
        keys_with_plans: &[(KeyRow, Option<String>)],
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.add_keys(keys_with_plans),
            Store::Redis(store) => store.add_keys(keys_with_plans),
        }
    }

    /// Lowers the expiry of a key to `expires_at`, unless the key expires earlier. Sets its
    /// revocation time to `revoked_at`, unless the key is revoked already. `None` leaves the expiry
    /// or the revocation as it is. Both are Unix seconds.
    pub fn expire_or_revoke_key(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.expire_or_revoke_key(id, expires_at, revoked_at),
            Store::Redis(store) => store.expire_or_revoke_key(id, expires_at, revoked_at),
        }
    }

    /// In one step, adds the key `new_key` and lowers the expiry of the key `old_id` to
    /// `old_expires_at`, unless that key expires earlier. The caller gives both keys the same
    /// account. Fails if the old key is revoked, or has expired at `unix_now`. All times are Unix
    /// seconds.
    pub fn rotate_key(
        &mut self,
        old_id: &str,
        new_key: &KeyRow,
        old_expires_at: i64,
        unix_now: i64,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.rotate_key(old_id, new_key, old_expires_at, unix_now),
            Store::Redis(store) => store.rotate_key(old_id, new_key, old_expires_at, unix_now),
        }
    }

    /// Undoes a rotation in one step: revokes the key `new_id` at `unix_now`, and sets the expiry
    /// of the key `old_id` back to `former_expires_at`. If that expiry is no longer
    /// `old_expires_at`, another command has changed it, and it stays.
    pub fn undo_rotation(
        &mut self,
        old_id: &str,
        new_id: &str,
        old_expires_at: i64,
        former_expires_at: Option<i64>,
        unix_now: i64,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => {
                store.undo_rotation(old_id, new_id, old_expires_at, former_expires_at, unix_now)
            }
            Store::Redis(store) => {
                store.undo_rotation(old_id, new_id, old_expires_at, former_expires_at, unix_now)
            }
        }
    }

    /// Creates an account, or changes its settings. A `new_plan` or `new_limit` of `None` keeps the
    /// present one. A `new_limit` of `Some(None)` removes the account's own limit, so that the
    /// limit of its plan applies.
    pub fn set_account(
        &mut self,
        name: &str,
        new_plan: Option<&str>,
        new_limit: Option<Option<MonthlyLimit>>,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.set_account(name, new_plan, new_limit),
            Store::Redis(store) => store.set_account(name, new_plan, new_limit),
        }
    }

    /// Writes back rows that the store had acknowledged and lost. Adds missing keys and accounts.
    /// If the store ends a key later than `keys` does, gives the key the earlier end. All other
    /// rows stay as they are. If there is nothing to write, the version stays the same.
    ///
    /// Returns how many of the `store.wait_replicas` replicas lack the rows; a repeated call counts
    /// them again.
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

    /// Fills an empty store with the contents of another store. Fails if the store to fill holds
    /// keys, accounts or totals. Gateways see its keys and accounts only once all contents are
    /// written.
    pub fn fill_empty_store(&mut self, contents: &StoreContents) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.fill_empty_store(contents),
            Store::Redis(store) => store.fill_empty_store(contents),
        }
    }
}
