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

    /// One line for each entry that riskgate did not write, as the last read found them among keys
    /// and accounts on a server. riskgate ignores such entries.
    pub fn describe_foreign_entries(&self) -> Vec<String> {
        match self {
            Store::Sqlite(_) => Vec::new(),
            Store::Redis(store) => store.describe_foreign_entries(),
        }
    }

    /// Initializes an empty server as a store: gives it a store id and a version. Every operation
    /// that writes keys or accounts does so too.
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

    /// Lowers the expiry of a key to `expires_at`, if given and earlier, and revokes the key at
    /// `revoked_at`, if given and the key is not revoked yet.
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

    /// In one step, adds the key `new`, which must belong to the same account, and lets the key
    /// with the id `old` expire at `old_expires_at` at the latest. Fails if the old key is revoked
    /// or has expired at `now`. All times are in Unix seconds.
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

    /// Undoes a rotation in one step: revokes the key `new` at `now`. If `old` still expires at
    /// `old_expires_at`, sets its expiry back to `former_expires_at`.
    pub fn undo_rotation(
        &mut self,
        old: &str,
        new: &str,
        old_expires_at: i64,
        former_expires_at: Option<i64>,
        now: i64,
    ) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => {
                store.undo_rotation(old, new, old_expires_at, former_expires_at, now)
            }
            Store::Redis(store) => {
                store.undo_rotation(old, new, old_expires_at, former_expires_at, now)
            }
        }
    }

    /// Creates an account, or changes its settings. `None` keeps the plan or limit. A limit of
    /// `Some(None)` removes the account's own limit, so that the limit of its plan applies.
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

    /// Writes back rows that the store had acknowledged and lost: adds missing keys, gives existing
    /// keys the earlier of both ends, and creates missing accounts. Other rows stay as they are. If
    /// there is nothing to write, the version stays the same.
    ///
    /// Returns how many of the `store.wait_replicas` replicas lack the rows. Repeat the call to
    /// count them again.
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
