//! A store of either kind: opening it and looking after it.

use std::time::Duration;

use crate::store::error::StoreError;
use crate::store::redis::connection::{Redis, RedisOptions};
use crate::store::sqlite::connection::Sqlite;
use crate::store::url::StoreUrl;

/// An open store: one connection, so give each thread its own.
pub enum Store {
    /// One SQLite file.
    Sqlite(Sqlite),
    /// A Redis or Valkey server.
    Redis(Box<Redis>),
}

impl Store {
    /// Opens a store. A file is created where there is none; a server need not answer yet.
    ///
    /// `patience` is how long one operation may take: in the embedded store, to wait for another
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

    /// Opens a store that must be there already; none is created.
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

    /// Opens a store as it is, for a look at it; none where none is yet and one could be made.
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

    /// What keeps this store from being used at all: a damaged file, a server that would forget
    /// what it acknowledged. A server that does not answer is no such thing.
    pub fn check_usable(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.check_usable(),
            Store::Redis(store) => store.check(),
        }
    }

    /// What has befallen an open store: its file was replaced, its server set up otherwise.
    pub fn check_still_usable(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.check_file_unchanged(),
            Store::Redis(store) => store.check(),
        }
    }

    /// From now on waits for up to five seconds: a command beside a busy gateway.
    pub fn set_busy_timeout(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.set_busy_timeout(),
            Store::Redis(_) => Ok(()),
        }
    }

    /// Leaves the store tidy for whoever moves or backs it up.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        match self {
            Store::Sqlite(store) => store.checkpoint(),
            Store::Redis(_) => Ok(()),
        }
    }
}
