//! Opening and checking a store of either kind.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use super::{
    AuditBackend, ConnectionBackend, DailyUsageBackend, DeploymentBackend, DnsFactBackend,
    ExpiredRowBackend, FillBackend, InboxSecretBackend, KeyAdditionBackend, LedgerBackend,
    OverrideBackend, QuotaEventBackend, RingBackend, RotationBackend, SignUpBackend, TimeBackend,
    TopListBackend, WriteBackBackend,
};
use crate::model::believed_time::BelievedTime;
use crate::model::month::Month;
use crate::store::audit::{ChangeAuthor, change_of_added_keys, change_of_revoked_declared_key};
use crate::store::error::StoreError;
use crate::store::ledger::Probe;
use crate::store::new_key_plan::NewKeyPlan;
use crate::store::redis::connection::Redis;
use crate::store::redis::options::RedisOptions;
use crate::store::reply_check::{check_probe, check_total_below_2_to_63};
use crate::store::rows::{KeyRow, RepeatableRequestRow, RingRows};
use crate::store::sqlite::connection::Sqlite;
use crate::store::url::StoreUrl;

/// All that a kind of store does.
pub trait Backend:
    ConnectionBackend
    + DeploymentBackend
    + RingBackend
    + KeyAdditionBackend
    + RotationBackend
    + WriteBackBackend
    + FillBackend
    + AuditBackend
    + OverrideBackend
    + LedgerBackend
    + DailyUsageBackend
    + TimeBackend
    + DnsFactBackend
    + QuotaEventBackend
    + TopListBackend
    + InboxSecretBackend
    + SignUpBackend
    + ExpiredRowBackend
    + Send
{
}

impl Backend for Sqlite {}
impl Backend for Redis {}

/// An open store, with one connection.
pub struct Store {
    backend: Box<dyn Backend>,
}

impl<B: Backend + 'static> From<B> for Store {
    fn from(backend: B) -> Store {
        Store { backend: Box::new(backend) }
    }
}

impl Deref for Store {
    type Target = dyn Backend;

    fn deref(&self) -> &Self::Target {
        &*self.backend
    }
}

impl DerefMut for Store {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.backend
    }
}

impl Store {
    /// Opens a store. Creates the SQLite file if there is none. A server need not answer yet.
    ///
    /// With Redis, `timeout` limits the frequent short exchanges with the server; all others may
    /// take five seconds or longer. With SQLite, `timeout` limits how long an operation waits while
    /// another process holds the lock.
    pub fn open(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Store, StoreError> {
        Store::open_file_by(Sqlite::open, url, options, timeout)
    }

    /// Opens a store. Fails if the SQLite file does not exist, and does not create it.
    pub fn open_existing(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Store, StoreError> {
        Store::open_file_by(Sqlite::open_existing, url, options, timeout)
    }

    /// Opens a store to copy what it has, and never creates one. An SQLite file keeps its version
    /// and permissions, and may be read-only. What is written to the opened store may be lost.
    pub fn open_to_copy(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Store, StoreError> {
        Store::open_file_by(Sqlite::open_to_copy, url, options, timeout)
    }

    /// Opens a store to read it, and never creates one. An SQLite file keeps its version. What is
    /// written to the opened store may be lost.
    pub fn open_to_read(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Store, StoreError> {
        Store::open_file_by(Sqlite::open_to_read, url, options, timeout)
    }

    fn open_file_by(
        open_file: impl FnOnce(&Path, Duration) -> Result<Sqlite, StoreError>,
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Store, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => open_file(path, timeout).map(Store::from),
            StoreUrl::Redis(url) => Redis::new(url, options, timeout).map(Store::from),
        }
    }

    /// Opens a store to check it, and never creates one. If the SQLite file does not exist, returns
    /// `None`, or fails if the file could not be created.
    pub fn open_to_check(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Option<Store>, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => Ok(Sqlite::open_to_check(path, timeout)?.map(Store::from)),
            StoreUrl::Redis(_) => Store::open(url, options, timeout).map(Some),
        }
    }

    /// Tells the store the believed time. All later operations on this connection use this time
    /// plus the seconds that have passed since. Before the first call, no time is known: nothing is
    /// deleted because of its age, and a new record gets the time of the latest record.
    pub fn set_time(&mut self, time: BelievedTime) {
        self.backend.told_time().set(time);
    }

    /// The believed time of this connection.
    pub fn now(&mut self) -> BelievedTime {
        self.backend.told_time().now()
    }

    /// The time of the latest record in the audit; `None` if there is no record.
    pub fn latest_audit_time(&mut self) -> Result<Option<i64>, StoreError> {
        Ok(self.read_audit_before(None, 1)?.first().map(|record| record.at))
    }

    /// Reads what [`RingBackend::ring_rows`] reads, with the oldest key first.
    pub fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        let mut rows = self.backend.ring_rows()?;
        if let Some(rows) = &mut rows {
            rows.keys.sort_unstable_by(KeyRow::compare_age);
        }
        Ok(rows)
    }

    /// Adds all keys or none; without any key, calls [`RingBackend::mark_as_store`]. Creates the
    /// accounts that don't exist yet. A plan that is given with a key becomes the plan of a new
    /// account that the key file does not name. If the keys are added for a `request` that can be
    /// repeated, the store remembers the request.
    ///
    /// # Errors
    /// If the store fails, or
    /// - has the id or the digest of a key already;
    /// - has an account whose present plan is not the plan that is given with its key;
    /// - knows the request already: see [`AuditBackend::find_repeatable_request`].
    pub fn add_keys(
        &mut self,
        author: &ChangeAuthor,
        keys_with_plans: &[(KeyRow, Option<NewKeyPlan>)],
        request: Option<&RepeatableRequestRow>,
    ) -> Result<(), StoreError> {
        match change_of_added_keys(keys_with_plans) {
            Some(change) => self.backend.add_keys(author, keys_with_plans, request, &change),
            None => self.mark_as_store(author),
        }
    }

    /// Revokes a key that only the key file has, by adding a revoked row of the key to the store: a
    /// key that is revoked in file or store counts as revoked. `declared` is the key as the file
    /// has it.
    pub fn revoke_declared_key(
        &mut self,
        author: &ChangeAuthor,
        declared: &KeyRow,
        revoked_at: i64,
    ) -> Result<(), StoreError> {
        let revoked = KeyRow { revoked_at: Some(revoked_at), ..declared.clone() };
        let change = change_of_revoked_declared_key(declared, &revoked);
        self.backend.add_keys(author, &[(revoked, None)], None, &change)
    }

    /// Does what [`LedgerBackend::probe`] does, and fails if the reply can't be true.
    pub fn probe(
        &mut self,
        latest_begun_month: Month,
        previous_probe: Option<&Probe>,
    ) -> Result<Probe, StoreError> {
        self.backend.probe(latest_begun_month, previous_probe).and_then(check_probe)
    }

    /// Reads what [`LedgerBackend::read_spent_by_others`] reads, and fails if the reply can't be
    /// true.
    pub fn read_spent_by_others(
        &mut self,
        account: &str,
        month: Month,
        node_id: &[u8; 16],
    ) -> Result<u64, StoreError> {
        let total = self.backend.read_spent_by_others(account, month, node_id)?;
        check_total_below_2_to_63(account, total)
    }
}
