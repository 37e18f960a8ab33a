//! The connection to a store's file.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::files::{FileIdentities, unusable};
use super::open;
use crate::store::error::StoreError;
use crate::store::finding::Finding;
use crate::store::operations::{ConnectionBackend, DeploymentBackend, ToldTime};

/// An open SQLite store, with one connection.
pub struct Sqlite {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(in crate::store) told_time: ToldTime,
    files: FileIdentities,
}

impl ConnectionBackend for Sqlite {
    fn is_server(&self) -> bool {
        false
    }

    fn told_time(&mut self) -> &mut ToldTime {
        &mut self.told_time
    }

    fn check_still_safe(&mut self) -> Result<(), StoreError> {
        self.check_file_not_replaced()
    }

    /// Fails if the file is damaged or read-only. Reads every page.
    fn check_safe_if_reachable(&mut self) -> Result<(), StoreError> {
        open::check_intact_and_writable(&self.connection, &self.path)
    }

    /// Lets later statements try to get a lock every millisecond, for up to five seconds. A command
    /// has to try so often, because a busy gateway frees the lock only for moments.
    fn raise_busy_timeout(&mut self) -> Result<(), StoreError> {
        const MAX_LOCK_RETRIES: i32 = 5_000;
        let retry = |tries| {
            std::thread::sleep(Duration::from_millis(1));
            tries < MAX_LOCK_RETRIES
        };
        let failed = self.error_while("opening the store");
        self.connection.busy_handler(Some(retry)).map_err(failed)
    }

    fn checkpoint_wal(&mut self) -> Result<bool, StoreError> {
        const MAX_CHECKPOINT_ATTEMPTS: u32 = 5;
        /// SQLite keeps the lock for writers while it waits for readers.
        const LOCK_WAIT: Duration = Duration::from_millis(2);
        const PAUSE: Duration = Duration::from_millis(10);
        // Somebody may have removed the log, and another process may use a new one.
        self.check_not_mixed()?;
        let failed = self.error_while("moving the log into the file");
        let busy_timeout: u32 = self
            .connection
            .pragma_query_value(None, "busy_timeout", |row| row.get(0))
            .map_err(&failed)?;
        self.connection.busy_timeout(LOCK_WAIT).map_err(&failed)?;
        let mut emptied = Ok(false);
        for _ in 0..MAX_CHECKPOINT_ATTEMPTS {
            emptied = try_emptying_wal(&self.connection);
            if !matches!(emptied, Ok(false)) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        // SQLite says 0 if `raise_busy_timeout` has set a function.
        match busy_timeout {
            0 => self.raise_busy_timeout()?,
            ms => {
                self.connection.busy_timeout(Duration::from_millis(ms.into())).map_err(&failed)?
            }
        }
        emptied.map_err(failed)
    }

    fn begin_snapshot(&mut self) -> Result<(), StoreError> {
        let failed = self.error_while("reading the whole store");
        // SQLite takes the snapshot at the first read.
        let begin = "BEGIN; SELECT count(*) FROM meta";
        self.connection.execute_batch(begin).map_err(failed)
    }

    fn end_snapshot(&mut self) {
        // A failed read may have ended the transaction already.
        let _ = self.connection.execute_batch("ROLLBACK");
    }
}

impl DeploymentBackend for Sqlite {
    fn check_deployment(&mut self, _deadline: Duration) -> Result<Vec<Finding>, StoreError> {
        let path = self.path.display().to_string();
        let file = match self.check_safe_if_reachable() {
            Err(error) => {
                let advice = match self.connection.is_readonly("main") {
                    Ok(true) => "let this user write to the file, its folder and its disk",
                    _ => "restore a backup",
                };
                Finding::fault("file", error.to_string(), advice)
            }
            Ok(()) => match self.check_takes_writes() {
                Err(error) => Finding::fault("file", error.to_string(), "free space on the disk"),
                Ok(()) => Finding::good("file", format!("{path} is whole and can be written to")),
            },
        };
        Ok(vec![file])
    }

    /// Fails if the disk is full. A change that is undone would not show this, because SQLite
    /// writes only when a change is complete.
    fn check_takes_writes(&mut self) -> Result<(), StoreError> {
        open::check_disk_has_space(&self.path, "writing to the store")
    }
}

impl Sqlite {
    /// Opens the store. Creates the file, and its directory, if there is none.
    ///
    /// `busy_timeout` is how long a statement waits for another process's lock.
    pub fn open(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        if !open::store_file_exists(path)? {
            open::create_store(path)?;
        }
        let store = Sqlite::open_with_retry(path, busy_timeout)?;
        // The permissions change only now, when the file has proved to be a store.
        open::remove_others_read_permission(path);
        Ok(store)
    }

    /// Like [`Sqlite::open`], but creates no store, and leaves permissions and version of the file
    /// as they are. If there is no file, returns `None`, or an error if no store could be created
    /// at this path.
    pub(in crate::store) fn open_to_check(
        path: &Path,
        busy_timeout: Duration,
    ) -> Result<Option<Sqlite>, StoreError> {
        match open::store_file_exists(path)? {
            true => {
                let is_older = open::is_of_older_version(path);
                Sqlite::open_unmigrated(path, is_older, busy_timeout).map(Some)
            }
            false => open::check_store_can_be_created(path).map(|()| None),
        }
    }

    /// Opens a store that must exist, to read it. The version of the file stays as it is. A file of
    /// an earlier version keeps its permissions as well.
    pub(in crate::store) fn open_to_read(
        path: &Path,
        busy_timeout: Duration,
    ) -> Result<Sqlite, StoreError> {
        check_file_exists(path)?;
        let is_older = open::is_of_older_version(path);
        let store = Sqlite::open_unmigrated(path, is_older, busy_timeout)?;
        if !is_older {
            open::remove_others_read_permission(path);
        }
        Ok(store)
    }

    /// Opens a store that must exist, to copy what it has. Permissions and version of the file stay
    /// as they are, and it may be read-only.
    pub(in crate::store) fn open_to_copy(
        path: &Path,
        busy_timeout: Duration,
    ) -> Result<Sqlite, StoreError> {
        check_file_exists(path)?;
        match is_writable(path) {
            true => Sqlite::open_unmigrated(path, open::is_of_older_version(path), busy_timeout),
            false => Sqlite::open_copy_in_memory(path, busy_timeout),
        }
    }

    /// Opens an existing store. If it has an earlier version, opens a migrated copy in memory, or
    /// fails if riskgate may not write the file.
    fn open_unmigrated(
        path: &Path,
        is_of_older_version: bool,
        busy_timeout: Duration,
    ) -> Result<Sqlite, StoreError> {
        match is_of_older_version {
            true if is_writable(path) => Sqlite::open_copy_in_memory(path, busy_timeout),
            true => Err(open::read_only_error(path)),
            false => Sqlite::open_with_retry(path, busy_timeout),
        }
    }

    fn open_copy_in_memory(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        let connection = open::copy_into_memory(path, busy_timeout)?;
        Ok(Sqlite::from_connection(connection, path, FileIdentities::of_copy(path)))
    }

    fn from_connection(connection: Connection, path: &Path, files: FileIdentities) -> Sqlite {
        Sqlite { connection, path: path.to_owned(), files, told_time: ToldTime::unknown() }
    }

    fn open_with_retry(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        let started = Instant::now();
        loop {
            match Sqlite::try_open(path, busy_timeout) {
                // While another process opens or closes the WAL, SQLite returns "busy" without
                // waiting.
                Err(error) if error.is_sqlite_locked() && started.elapsed() < busy_timeout => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                outcome => return outcome,
            }
        }
    }

    fn try_open(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        let failed = |source| open::open_error(path, source);
        let mut connection = open::connect_to_existing_file(path).map_err(failed)?;
        connection.busy_timeout(busy_timeout.max(Duration::from_millis(1))).map_err(failed)?;
        open::check_migrate_and_configure(&mut connection, path)?;
        // SQLite opens the files beside the store at the first read.
        let read = connection.query_row("SELECT count(*) FROM meta", [], |_| Ok(()));
        read.map_err(failed)?;
        Ok(Sqlite::from_connection(connection, path, FileIdentities::at(path)))
    }

    /// Opens a store that must exist already.
    pub fn open_existing(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        check_file_exists(path)?;
        Sqlite::open(path, busy_timeout)
    }

    /// Fails if the path no longer leads to the opened files, because one was moved, deleted or
    /// replaced. Further writes would go to the old files and be lost.
    pub(in crate::store) fn check_file_not_replaced(&self) -> Result<(), StoreError> {
        self.files.check_in_place(&self.connection)
    }

    /// Fails if this process and others may have different files of the store, or if SQLite may
    /// apply the log to another file.
    pub(super) fn check_not_mixed(&self) -> Result<(), StoreError> {
        self.files.check_not_mixed(&self.connection)
    }

    /// Returns a function that converts an error of SQLite during `operation`.
    pub(super) fn error_while(
        &self,
        operation: &'static str,
    ) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        let path = self.path.display().to_string();
        move |source| StoreError::Sqlite { location: path.clone(), operation, source }
    }

    /// Reads from the store.
    pub(super) fn read<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        read(&self.connection).map_err(self.error_while(operation))
    }

    /// Makes a change in one transaction. If `change` fails, the store stays as it was.
    pub(super) fn write<T>(
        &mut self,
        operation: &'static str,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, WriteError>,
    ) -> Result<T, StoreError> {
        let failed = self.error_while(operation);
        let transaction = self.begin_write_transaction(operation)?;
        match change(&transaction) {
            Ok(done) => transaction.commit().map_err(failed).map(|()| done),
            Err(WriteError::Sqlite(error)) => Err(failed(error)),
            Err(WriteError::Refused(error)) => Err(error),
        }
    }

    pub(super) fn begin_write_transaction(
        &mut self,
        operation: &'static str,
    ) -> Result<Transaction<'_>, StoreError> {
        let failed = self.error_while(operation);
        // Two processes with different logs could both grant the last calls of an account.
        self.check_not_mixed()?;
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)
    }
}

/// Why a change failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The contents of the store don't allow the change.
    #[error(transparent)]
    Refused(#[from] StoreError),
}

/// Returns true if the log is now empty. The first step moves most pages, and keeps no writer
/// waiting.
fn try_emptying_wal(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    let is_busy = |row: &rusqlite::Row<'_>| row.get::<_, bool>(0);
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], is_busy).map(|is_busy| !is_busy)
}

fn is_writable(path: &Path) -> bool {
    OpenOptions::new().append(true).open(path).is_ok()
}

fn check_file_exists(path: &Path) -> Result<(), StoreError> {
    match open::store_file_exists(path)? {
        true => Ok(()),
        false => Err(unusable(path, "a store", "no file")),
    }
}

#[cfg(test)]
mod tests;
