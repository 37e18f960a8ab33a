//! The file of a store, opened.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::open;
use crate::store::error::StoreError;

/// An open store. One connection: give each thread its own.
pub struct Sqlite {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    /// Device and inode of the file that was opened.
    file: Option<(u64, u64)>,
}

impl Sqlite {
    /// Opens the store, creating it and its directory where there is none.
    ///
    /// `busy` is how long a statement waits for another process's lock.
    pub fn open(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        match open::exists(path)? {
            true => open::remove_others_read(path),
            false => open::create(path)?,
        }
        Sqlite::open_with_retry(path, busy_timeout)
    }

    /// As [`Sqlite::open`], but leaves rights as they are, and makes no store where none is: there
    /// it only looks whether one could be made.
    pub(in crate::store) fn open_to_check(
        path: &Path,
        busy_timeout: Duration,
    ) -> Result<Option<Sqlite>, StoreError> {
        match open::exists(path)? {
            true => Sqlite::open_with_retry(path, busy_timeout).map(Some),
            false => open::check_creatable(path).map(|()| None),
        }
    }

    fn open_with_retry(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        let begun = Instant::now();
        loop {
            match Sqlite::try_open(path, busy_timeout) {
                // While the log is opened or closed SQLite says "busy" without waiting.
                Err(error) if error.is_busy() && begun.elapsed() < busy_timeout => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                outcome => return outcome,
            }
        }
    }

    fn try_open(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        let failed = |source| open::open_error(path, source);
        let mut connection = open::connect(path).map_err(failed)?;
        connection.busy_timeout(busy_timeout.max(Duration::from_millis(1))).map_err(failed)?;
        open::prepare_connection(&mut connection, path)?;
        Ok(Sqlite { connection, path: path.to_owned(), file: file_identity(path) })
    }

    /// Reads the whole file and says whether it is intact, and may be written.
    pub(in crate::store) fn check_usable(&self) -> Result<(), StoreError> {
        open::check_usable(&self.connection, &self.path)
    }

    /// From now on a statement waits for a lock by asking every millisecond, five seconds long: a
    /// command beside a busy gateway must find the short moments in which the lock is free.
    pub(in crate::store) fn set_busy_timeout(&mut self) -> Result<(), StoreError> {
        const TRIES: i32 = 5_000;
        let ask_again = |tries| {
            std::thread::sleep(Duration::from_millis(1));
            tries < TRIES
        };
        let failed = self.error_while("opening the store");
        self.connection.busy_handler(Some(ask_again)).map_err(failed)
    }

    /// Opens a store that must exist already, for reading what is there.
    pub fn open_existing(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        if !open::exists(path)? {
            return Err(StoreError::Unusable {
                location: path.display().to_string(),
                expected: "a store",
                found: "no file".to_owned(),
            });
        }
        Sqlite::open(path, busy_timeout)
    }

    /// Fails when the path does not lead to the opened file any more: it was deleted, or another
    /// one was put in its place, and what we write would be lost with it.
    pub(in crate::store) fn check_file_unchanged(&self) -> Result<(), StoreError> {
        if file_identity(&self.path) == self.file {
            return Ok(());
        }
        Err(StoreError::Unusable {
            location: self.path.display().to_string(),
            expected: "the file that was opened",
            found: "another one, or none; put it back, or restart to use what is there".to_owned(),
        })
    }

    /// Moves what was written into the one file, so that it alone can be moved or backed up once
    /// nobody has it open. Another process that reads just now leaves it as it is.
    pub(in crate::store) fn checkpoint(&self) -> Result<(), StoreError> {
        let done = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        done.map_err(self.error_while("moving the log into the file"))
    }

    pub(super) fn error_while(
        &self,
        doing: &'static str,
    ) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        let path = self.path.display().to_string();
        move |source| StoreError::Sqlite { location: path.clone(), operation: doing, source }
    }

    pub(super) fn begin_immediate(
        &mut self,
        doing: &'static str,
    ) -> Result<Transaction<'_>, StoreError> {
        let failed = self.error_while(doing);
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)
    }
}

fn file_identity(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_no_store_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        std::fs::write(&path, "").unwrap();
        let error = Sqlite::open(&path, Duration::from_millis(50)).err().unwrap().to_string();
        assert!(error.contains("expected a riskgate store, but found an empty one"), "{error}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn a_file_that_was_replaced_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
        store.check_file_unchanged().unwrap();
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        assert!(store.check_file_unchanged().is_err());
    }

    #[test]
    fn many_may_create_a_store_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| Sqlite::open(&path, Duration::from_secs(5)).map(drop).unwrap());
            }
        });
        let left = std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok);
        assert!(left.into_iter().all(|e| !e.file_name().to_string_lossy().contains(".new-")));
    }
}
