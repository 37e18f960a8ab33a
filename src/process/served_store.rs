//! Which store the running gateway serves, for commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::support::regular_file::write_atomically;

/// The store that a process serves, as commands learn it, so that they do not change another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedStore {
    /// Where it is: see
    /// [`StoreOptions::shown_address`](crate::config::StoreOptions::shown_address).
    pub address: String,
    /// The id of the store; `None` until the process has read keys from it.
    pub id: Option<String>,
    /// The inode of an SQLite file. Another file at the address has another one, although SQLite
    /// may read the id from the log beside it.
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

    /// Reads what a process on this machine has written.
    pub fn read(file: &Path) -> io::Result<ServedStore> {
        let text = fs::read_to_string(file)?;
        let mut lines = text.lines();
        // Older versions wrote the address alone.
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

/// The file that names the store of the process that serves from a runtime directory. Only that
/// process writes it, so that commands don't take the store of another process for it.
#[derive(Debug)]
pub struct ServedStoreFile {
    path: PathBuf,
    /// Whether this process serves from the directory.
    is_claimed: Arc<AtomicBool>,
    /// What this process has written; `None` if it has written nothing.
    written: Option<ServedStore>,
    /// When a write failed, if no later one has succeeded.
    failed_at: Option<Instant>,
}

impl ServedStoreFile {
    /// The file at `path`. `is_claimed` is true while this process may write it.
    pub fn new(path: PathBuf, is_claimed: Arc<AtomicBool>) -> ServedStoreFile {
        ServedStoreFile { path, is_claimed, written: None, failed_at: None }
    }

    /// Writes the file if this process serves from the directory and has not written this before.
    /// After a failure, the next calls try again, with a pause.
    ///
    /// # Errors
    /// Returns an error if the file can't be written, once for each series of failures.
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
