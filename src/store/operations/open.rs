//! Opening and checking a store of either kind.

use std::time::Duration;

use crate::store::error::StoreError;
use crate::store::redis::connection::{Redis, RedisOptions};
use crate::store::sqlite::connection::Sqlite;
use crate::store::url::StoreUrl;

/// An open store. It has one connection, so each thread opens its own.
pub enum Store {
    /// One SQLite file.
    Sqlite(Box<Sqlite>),
    /// A Redis or Valkey server.
    Redis(Box<Redis>),
}

impl From<Sqlite> for Store {
    fn from(store: Sqlite) -> Store {
        Store::Sqlite(Box::new(store))
    }
}

impl Store {
    /// Opens a store. Creates the SQLite file if there is none. A server need not answer yet.
    ///
    /// With Redis, `timeout` limits each exchange with the server. With SQLite, it limits how long
    /// an operation waits while another process holds the lock.
    pub fn open(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Store, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => Sqlite::open(path, timeout).map(Store::from),
            StoreUrl::Redis(url) => {
                Redis::new(url, options, timeout).map(|store| Store::Redis(Box::new(store)))
            }
        }
    }

    /// Opens a store. Fails if the SQLite file does not exist, and does not create it.
    pub fn open_existing(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Store, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => Sqlite::open_existing(path, timeout).map(Store::from),
            StoreUrl::Redis(_) => Store::open(url, options, timeout),
        }
    }

    /// Opens a store to check it, and never creates one. Returns `None` if the SQLite file does not
    /// exist but could be created. Fails if it could not be created.
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

    /// Fails if riskgate must not use the store: its file is damaged or read-only, or its server
    /// may evict acknowledged data. Succeeds if the server does not answer.
    pub fn check_safe_if_reachable(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.check_safe_if_reachable(),
            Store::Redis(store) => store.check_safe_if_reachable(),
        }
    }

    /// Fails if an open store can't be used any more: its file was moved, deleted or replaced, or
    /// its server may now evict acknowledged data.
    pub fn check_still_usable(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.check_file_not_replaced(),
            Store::Redis(store) => store.check_safe_if_reachable(),
        }
    }

    /// Lets later operations wait up to five seconds for an SQLite lock, so that a command succeeds
    /// while a busy gateway uses the same file. Does nothing if the store is in Redis.
    pub fn raise_busy_timeout(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.raise_busy_timeout(),
            Store::Redis(_) => Ok(()),
        }
    }

    /// Moves SQLite's write-ahead log into the database file. Once no process has the store open,
    /// this file alone can be moved or backed up. Does nothing if the store is in Redis.
    pub fn checkpoint_wal(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.checkpoint_wal(),
            Store::Redis(_) => Ok(()),
        }
    }
}
