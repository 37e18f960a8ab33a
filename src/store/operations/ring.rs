//! The verbs of keys and accounts.

use super::open::Store;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::error::StoreError;
use crate::store::rows::{AccountRow, KeyRow, RingChanges, RingRows, RingVersion, StoreContents};

impl Store {
    /// The identity of the store and the version of its keys and accounts; cheap enough to ask
    /// several times a second. `None` where there is no store yet, or where it lost its mark.
    pub fn ring_version(&mut self) -> Result<Option<RingVersion>, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_mark(),
            Store::Redis(store) => store.ring_mark(),
        }
    }

    /// All keys and accounts: at least as new as the mark that comes with them. `None` without a
    /// mark.
    pub fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_rows(),
            Store::Redis(store) => store.ring_rows(),
        }
    }

    /// The keys and accounts that changed after version `since`, at least as new as the version
    /// that comes with them. They are all of one history; whether it is the one in which the
    /// caller knows that version, [`RingChanges::follow`] tells.
    pub fn ring_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        match self {
            Store::Sqlite(store) => store.ring_changes(since),
            Store::Redis(store) => store.ring_changes(since),
        }
    }

    /// What lay beside keys and accounts when they were last asked for, and is none of ours: told
    /// in words, and else ignored.
    pub fn foreign_entries(&self) -> Vec<String> {
        match self {
            Store::Sqlite(_) => Vec::new(),
            Store::Redis(store) => store.foreign_entries(),
        }
    }

    /// Marks an empty server as a store; every verb that writes keys or accounts does so too.
    pub fn mark_as_store(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(_) => Ok(()),
            Store::Redis(store) => store.init(),
        }
    }

    /// Adds keys, all or none. An account named for the first time is created; a plan given
    /// with a key becomes its account's.
    pub fn add_keys(&mut self, keys: &[(KeyRow, Option<String>)]) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.add_keys(keys),
            Store::Redis(store) => store.add_keys(keys),
        }
    }

    /// Sets when a key ends: its expiry to at most `expires_at`, and `revoked_at` if given.
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

    /// Adds `new` and ends the key `old` at `ends` at the latest, in one step. `new` is of the same
    /// account. A key that was revoked or has expired by `now` is not rotated.
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

    /// Takes a rotation back in one step: revokes the key `new`, and gives `old` its expiry
    /// `before` again, unless it ends at another time than `ends` by now.
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

    /// Creates an account or changes what is given of it. `Some(None)` goes back to the plan's
    /// limit.
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

    /// Writes back what the store had acknowledged and lost: keys that are not there are added,
    /// those that are end when either row says so, and accounts that are not there are created.
    /// What is there otherwise stays as it is; with nothing to write there is no new version.
    /// Answers how many of `store.wait_replicas` lack what was written here; said again, it counts
    /// them again.
    pub fn restore_rows(
        &mut self,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        match self {
            Store::Sqlite(store) => store.restore(keys, accounts),
            Store::Redis(store) => store.restore(keys, accounts),
        }
    }

    /// Fills an empty store with what another one held; refuses one that holds keys, accounts or
    /// numbers. Until it is whole no gateway takes anything from it.
    pub fn fill_from(&mut self, contents: &StoreContents) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.fill(contents),
            Store::Redis(store) => store.fill(contents),
        }
    }
}
