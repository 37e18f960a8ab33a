//! The file in the runtime directory that tells commands which store the gateway serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

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
    /// The inode of the SQLite file; `None` for a Redis server, and if the file does not exist. If
    /// another file takes the place of the served file, the inode differs. The id may be the same,
    /// because SQLite may read the id from the write-ahead log of the served file.
    pub inode: Option<u64>,
}

impl ServedStore {
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

/// After a failed write, the next attempt waits this long.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

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

    /// Writes the file if this process has claimed the directory and `served` differs from what was
    /// written last. After a failure, calls try again every [`RETRY_PAUSE`].
    ///
    /// # Errors
    /// If the file can't be written. Of several failures in a row, only the first is returned.
    pub fn update(&mut self, served: &ServedStore) -> io::Result<()> {
        let must_pause = self.failed_at.is_some_and(|at| at.elapsed() < RETRY_PAUSE);
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
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_serves_from_the_directory_writes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, is_claimed) = (folder.path().join("store"), Arc::new(AtomicBool::new(false)));
        let mut file = ServedStoreFile::new(path.clone(), Arc::clone(&is_claimed));
        let served = ServedStore { address: "sqlite:a".to_owned(), id: None, inode: Some(7) };
        file.update(&served).unwrap();
        assert!(!path.exists());
        is_claimed.store(true, Ordering::Release);
        file.update(&served).unwrap();
        assert_eq!(ServedStore::read(&path).unwrap(), served);
    }

    #[test]
    fn a_failed_write_is_told_once_and_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/store");
        let mut file = ServedStoreFile::new(path.clone(), Arc::new(AtomicBool::new(true)));
        let served = ServedStore { address: "sqlite:a".to_owned(), id: None, inode: None };
        file.update(&served).unwrap_err();
        std::fs::create_dir(folder.path().join("missing")).unwrap();
        file.update(&served).unwrap();
        assert!(!path.exists(), "a pause comes first");
        file.failed_at = file.failed_at.and_then(|at| at.checked_sub(RETRY_PAUSE));
        file.update(&served).unwrap();
        assert_eq!(ServedStore::read(&path).unwrap(), served);
    }
}
