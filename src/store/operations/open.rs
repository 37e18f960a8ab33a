//! Opening and checking a store of either kind.

use std::time::Duration;

use crate::store::error::StoreError;
use crate::store::redis::connection::{Redis, RedisOptions};
use crate::store::sqlite::connection::Sqlite;
use crate::store::url::StoreUrl;

/// An open store with one connection, so each thread needs its own.
pub enum Store {
    /// One SQLite file.
    Sqlite(Sqlite),
    /// A Redis or Valkey server.
    Redis(Box<Redis>),
}

impl Store {
    /// Opens a store. A SQLite file is created if there is none; a server need not answer yet.
    ///
    /// `timeout` is how long one operation may take; in SQLite, how long it waits for another
    /// process's lock.
    pub fn open(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Store, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => Sqlite::open(path, timeout).map(Store::Sqlite),
            StoreUrl::Redis(url) => {
                Redis::new(url, options, timeout).map(|store| Store::Redis(Box::new(store)))
            }
        }
    }

    /// Opens a store that must exist; none is created.
    pub fn open_existing(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Store, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => Sqlite::open_existing(path, timeout).map(Store::Sqlite),
            StoreUrl::Redis(_) => Store::open(url, options, timeout),
        }
    }

    /// Opens a store without changing it, to check it. Returns `None` if there is none and one
    /// could be created.
    pub fn open_to_check(
        url: &StoreUrl,
        options: &RedisOptions,
        timeout: Duration,
    ) -> Result<Option<Store>, StoreError> {
        match url {
            StoreUrl::Sqlite(path) => Ok(Sqlite::open_to_check(path, timeout)?.map(Store::Sqlite)),
            StoreUrl::Redis(_) => Store::open(url, options, timeout).map(Some),
        }
    }

    /// Fails if the store can't be used at all: its file is damaged, or its server may evict
    /// acknowledged data. A server that does not answer passes.
    pub fn check_usable(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.check_usable(),
            Store::Redis(store) => store.check_usable(),
        }
    }

    /// Fails if an open store has changed: its file was replaced, or its server was reconfigured.
    pub fn check_still_usable(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.check_file_unchanged(),
            Store::Redis(store) => store.check_usable(),
        }
    }

    /// From now on operations wait up to five seconds for a lock: a command must get its turn
    /// beside a busy gateway.
    pub fn set_busy_timeout(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.set_busy_timeout(),
            Store::Redis(_) => Ok(()),
        }
    }

    /// Moves everything into the store's one file, so that it can be moved or backed up.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.checkpoint(),
            Store::Redis(_) => Ok(()),
        }
    }
}
