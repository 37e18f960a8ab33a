//! The file in the runtime directory that tells commands which store the gateway serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use crate::config::StoreOptions;
use crate::store::{StoreUrl, is_log_or_memory_missing};
use crate::support::regular_file::write_atomically;

/// The store that a gateway serves. Commands compare it with the store of their config, so that a
/// command does not change another store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedStore {
    /// The address, as
    /// [`StoreOptions::shown_address`](crate::config::StoreOptions::shown_address) returns it.
    pub address: String,
    /// The id of the store; `None` until the gateway has read keys from the store.
    pub id: Option<String>,
    /// The inode of the SQLite file; `None` for a Redis server, if the file does not exist, and for
    /// a gateway of an older version. If another file takes the place of the served file, the inode
    /// differs. The id may be the same, because SQLite may read the id from the write-ahead log of
    /// the served file.
    pub inode: Option<u64>,
}

/// How a store that was found differs from the store that a gateway serves.
#[derive(Debug, PartialEq, Eq)]
pub enum DifferentStore {
    /// The config names a store at another address.
    Address {
        /// The address of the served store.
        served: String,
        /// The address that the config names.
        found: String,
    },
    /// The SQLite file at this address is missing.
    MissingFile {
        /// The address of the store.
        address: String,
    },
    /// Another SQLite file is at this address.
    OtherFile {
        /// The address of the store.
        address: String,
    },
    /// The write-ahead log (`-wal`) of the SQLite file at this address is missing, or its shared
    /// memory (`-shm`). A gateway has both beside its file.
    MissingLog {
        /// The address of the store.
        address: String,
    },
    /// The store at this address has another id, or none because it is an empty server.
    Id {
        /// The address of the store.
        address: String,
        /// The id of the served store.
        served: String,
        /// The id that was found; `None` if the server is empty.
        found: Option<String>,
    },
}

impl fmt::Display for DifferentStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = "expected the store of the running gateway, but found";
        match self {
            DifferentStore::Address { served, found } => write!(
                f,
                "store.url: expected {served}, the store of the running gateway, but found {found}; \
                 restart the gateway first, or undo the change of store.url"
            ),
            DifferentStore::MissingFile { address } => {
                write!(f, "{address}: {expected} no file; put it back first")
            }
            DifferentStore::OtherFile { address } => {
                write!(f, "{address}: {expected} another file; put it back first")
            }
            DifferentStore::MissingLog { address } => {
                write!(
                    f,
                    "{address}: {expected} no -wal or no -shm beside it; /readyz of the gateway \
                     says what to do"
                )
            }
            DifferentStore::Id { address, served, found } => {
                let found = match found {
                    Some(found) => format!("the store {found}"),
                    None => "an empty server".to_owned(),
                };
                write!(
                    f,
                    "{address}: expected the store {served} of the running gateway, but found \
                     {found}; bring the store back with its data, or stop the gateway first"
                )
            }
        }
    }
}

impl ServedStore {
    /// Describes the store of a process that serves it. Looks at the file of an SQLite store.
    pub fn new(store: &StoreOptions, id: Option<String>) -> ServedStore {
        ServedStore { address: store.shown_address(), id, inode: inode_of(store) }
    }

    /// Fails if `store` is at another address than the served store, or if its SQLite file is
    /// missing, is another file, or has lost its log. An older gateway has not told its file; any
    /// file then passes.
    pub fn check_place(&self, store: &StoreOptions) -> Result<(), DifferentStore> {
        let address = store.shown_address();
        if address != self.address {
            return Err(DifferentStore::Address { served: self.address.clone(), found: address });
        }
        match (self.inode, inode_of(store)) {
            (Some(served), Some(found)) if served != found => {
                Err(DifferentStore::OtherFile { address })
            }
            (Some(_), None) => Err(DifferentStore::MissingFile { address }),
            (Some(_), Some(_)) if lacks_log_or_memory(store) => {
                Err(DifferentStore::MissingLog { address })
            }
            _ => Ok(()),
        }
    }

    /// Fails if `found` is not the id of the served store. `found` is `None` for an empty server.
    /// While the gateway has not read keys from the store, any id passes.
    pub fn check_id(&self, found: Option<&str>) -> Result<(), DifferentStore> {
        match &self.id {
            Some(served) if found != Some(served) => Err(DifferentStore::Id {
                address: self.address.clone(),
                served: served.clone(),
                found: found.map(str::to_owned),
            }),
            _ => Ok(()),
        }
    }

    /// Writes the file that [`ServedStore::read`] reads.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let ServedStore { address, id, inode } = self;
        let id = id.as_deref().unwrap_or_default();
        let inode = inode.map_or(String::new(), |inode| inode.to_string());
        write_atomically(file, format!("{address}\n{id}\n{inode}\n").as_bytes())
    }

    /// Reads the file that [`ServedStore::write`] wrote.
    pub fn read(file: &Path) -> io::Result<ServedStore> {
        let text = fs::read_to_string(file)?;
        let mut lines = text.lines();
        // Older versions of riskgate wrote only the address.
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (address, id, inode) = (next(), next(), next());
        Ok(ServedStore {
            address,
            id: Some(id).filter(|id| !id.is_empty()),
            inode: inode.parse().ok(),
        })
    }
}

fn inode_of(store: &StoreOptions) -> Option<u64> {
    store.file_identity().map(|(_, inode)| inode)
}

fn lacks_log_or_memory(store: &StoreOptions) -> bool {
    matches!(&store.url, StoreUrl::Sqlite(path) if is_log_or_memory_missing(path))
}

/// After a failed attempt to write the file or to bind its sockets, the next one waits this long.
pub(super) const SERVED_STORE_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The file in a runtime directory that describes the served store. Only the process that has
/// claimed the directory writes the file.
#[derive(Debug)]
pub struct ServedStoreFile {
    path: PathBuf,
    /// Whether this process has claimed the directory.
    is_claimed: Arc<AtomicBool>,
    /// What this process wrote last; `None` if this process has written nothing.
    written: Option<ServedStore>,
    /// When the last write failed; `None` if it succeeded, or if nothing was written yet.
    failed_at: Option<Instant>,
}

impl ServedStoreFile {
    /// Creates nothing on the disk. `is_claimed` is true while this process may write the file.
    pub fn new(path: PathBuf, is_claimed: Arc<AtomicBool>) -> ServedStoreFile {
        ServedStoreFile { path, is_claimed, written: None, failed_at: None }
    }

    /// Writes the file if this process has claimed the directory and `served` differs from what
    /// this process wrote last. For [`SERVED_STORE_RETRY_PAUSE`] after a failure, does nothing.
    ///
    /// # Errors
    /// If the file can't be written. Of several failures in a row, only the first is returned.
    pub fn update(&mut self, served: &ServedStore) -> io::Result<()> {
        let must_pause = self.failed_at.is_some_and(|at| at.elapsed() < SERVED_STORE_RETRY_PAUSE);
        if self.written.as_ref() == Some(served)
            || must_pause
            || !self.is_claimed.load(Ordering::Acquire)
        {
            return Ok(());
        }
        match served.write(&self.path) {
            Ok(()) => {
                (self.written, self.failed_at) = (Some(served.clone()), None);
                Ok(())
            }
            Err(error) => match self.failed_at.replace(Instant::now()) {
                None => Err(error),
                Some(_) => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests;
