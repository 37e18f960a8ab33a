//! The connection to a store's file.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::files::OpenedFiles;
use super::open;
use crate::store::error::StoreError;
use crate::store::finding::Finding;
use crate::store::operations::connection::ConnectionBackend;
use crate::store::told_time::ToldTime;

/// An open SQLite store, with one connection.
pub struct Sqlite {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(in crate::store) told_time: ToldTime,
    files: OpenedFiles,
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

    fn check_deployment(&mut self, _deadline: Duration) -> Result<Vec<Finding>, StoreError> {
        let path = self.path.display().to_string();
        let file = match self.check_safe_if_reachable() {
            Err(error) => Finding::fault("file", error.to_string(), "restore a backup"),
            Ok(()) => match self.check_takes_writes() {
                Err(error) => Finding::fault("file", error.to_string(), "free space on the disk"),
                Ok(()) => Finding::good("file", format!("{path} is whole and can be written to")),
            },
        };
        Ok(vec![file])
    }

    /// Fails if the file is damaged or read-only. Reads every page.
    fn check_safe_if_reachable(&mut self) -> Result<(), StoreError> {
        open::check_intact_and_writable(&self.connection, &self.path)
    }

    /// Fails if the disk is full. A change that is undone would not show this, because SQLite
    /// writes only when a change is complete.
    fn check_takes_writes(&mut self) -> Result<(), StoreError> {
        open::check_disk_has_space(&self.path, "writing to the store")
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
        const MAX_ATTEMPTS: u32 = 5;
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
        for _ in 0..MAX_ATTEMPTS {
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

    /// Opens an existing store. If it has an earlier version, opens a migrated copy in memory.
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
        Ok(Sqlite::from_connection(connection, path, OpenedFiles::of_copy(path)))
    }

    fn from_connection(connection: Connection, path: &Path, files: OpenedFiles) -> Sqlite {
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
        Ok(Sqlite::from_connection(connection, path, OpenedFiles::at(path)))
    }

    /// Opens a store that must exist already.
    pub fn open_existing(path: &Path, busy_timeout: Duration) -> Result<Sqlite, StoreError> {
        check_file_exists(path)?;
        Sqlite::open(path, busy_timeout)
    }

    /// Fails if the path no longer leads to the opened files, because one was moved, deleted or
    /// replaced. Further writes would go to the old files and be lost. Another process that uses
    /// new files would not see these writes.
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
        false => Err(StoreError::Unusable {
            location: path.display().to_string(),
            expected: "a store",
            found: "no file".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::believed_time::TimeAnchor;
    use crate::store::operations::audit::AuditBackend;
    use crate::store::operations::quota_events::QuotaEventBackend;
    use crate::store::operations::ring::RingBackend;
    use crate::store::operations::time::TimeBackend;

    #[test]
    fn an_empty_file_is_refused_and_stays_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        std::fs::write(&path, "").unwrap();
        let error = Sqlite::open(&path, Duration::from_millis(50)).err().unwrap().to_string();
        assert!(error.contains("expected a riskgate store, but found an empty one"), "{error}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    }

    /// Makes a store of version 2 from a present one.
    const MAKE_VERSION_2_WITH_ACCOUNT: &str =
        "DROP TABLE quota_event; DROP TABLE audit; DROP TABLE source_state; DROP TABLE request;
         DROP TABLE daily_usage; PRAGMA user_version = 2;
         INSERT INTO account (name) VALUES ('acme')";

    #[test]
    fn a_store_of_version_2_is_migrated_and_keeps_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let open = || Sqlite::open(&path, Duration::from_secs(5)).unwrap();
        open().connection.execute_batch(MAKE_VERSION_2_WITH_ACCOUNT).unwrap();
        for _ in 0..2 {
            let mut store = open();
            assert_eq!(store.count_pending_quota_events().unwrap(), 0);
            assert_eq!(store.read_audit_before(None, 9).unwrap(), []);
            let read = |select: &str| -> i64 {
                store.connection.query_row(select, [], |row| row.get(0)).unwrap()
            };
            assert_eq!(read("PRAGMA user_version"), 3);
            assert_eq!(read("SELECT count(*) FROM account"), 1);
        }
    }

    #[test]
    fn a_store_of_version_2_is_read_through_a_link_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("store.db"), folder.path().join("link"));
        let writer = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
        writer.connection.execute_batch(MAKE_VERSION_2_WITH_ACCOUNT).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let store = Sqlite::open_to_read(&link, Duration::from_secs(5)).unwrap();
        let read = |connection: &Connection, select: &str| -> i64 {
            connection.query_row(select, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(read(&store.connection, "SELECT count(*) FROM account"), 1);
        assert_eq!(read(&store.connection, "PRAGMA user_version"), 3);
        assert_eq!(read(&writer.connection, "PRAGMA user_version"), 2);
    }

    #[test]
    fn check_file_not_replaced_fails_if_the_file_was_moved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
        store.check_file_not_replaced().unwrap();
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        assert!(store.check_file_not_replaced().is_err());
    }

    /// The names of the accounts in the database file alone, as if the log were lost.
    fn read_accounts_without_log(file: &Path) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy.db");
        std::fs::copy(file, &copy).unwrap();
        let connection = Connection::open(&copy).unwrap();
        let mut statement = connection.prepare("SELECT name FROM account").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    fn add_account(store: &mut Sqlite, name: &str) -> Result<(), StoreError> {
        let transaction = store.begin_write_transaction("testing")?;
        transaction.execute("INSERT INTO account (name) VALUES (?1)", [name]).unwrap();
        transaction.commit().unwrap();
        Ok(())
    }

    fn open_for_test(path: &Path) -> Result<Sqlite, StoreError> {
        Sqlite::open(path, Duration::from_secs(5))
    }

    /// A store with the account `old` in its file, and the account `new` in its log alone.
    fn open_with_account_in_log(path: &Path) -> Sqlite {
        let mut store = open_for_test(path).unwrap();
        add_account(&mut store, "old").unwrap();
        assert!(store.checkpoint_wal().unwrap());
        add_account(&mut store, "new").unwrap();
        assert_eq!(read_accounts_without_log(path), ["old"]);
        store
    }

    #[test]
    fn no_store_is_created_beside_the_log_of_another_file() {
        for suffix in ["-wal", "-journal"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("store.db");
            let log = folder.path().join(format!("store.db{suffix}"));
            std::fs::write(&log, "changes").unwrap();
            let wait = Duration::from_secs(5);
            let errors = [
                Sqlite::open(&path, wait).err(),
                Sqlite::open_to_check(&path, wait).err(),
                Sqlite::open_to_read(&path, wait).err(),
            ];
            for error in errors {
                let error = error.unwrap().to_string();
                assert!(error.contains("found only its log ") && error.contains(suffix), "{error}");
            }
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
            assert_eq!(std::fs::read_to_string(&log).unwrap(), "changes");
            // SQLite empties a log that has nothing new.
            std::fs::write(&log, "").unwrap();
            open_for_test(&path).unwrap();
        }
    }

    #[test]
    fn another_file_is_never_opened_with_the_log_of_the_former_one() {
        let folder = tempfile::tempdir().unwrap();
        let in_folder = |name: &str| folder.path().join(name);
        let (path, other, aside) =
            (in_folder("store.db"), in_folder("other.db"), in_folder("aside.db"));
        drop(open_for_test(&other).unwrap());
        let bytes = std::fs::read(&other).unwrap();
        let mut store = open_with_account_in_log(&path);
        std::fs::rename(&path, &aside).unwrap();
        std::fs::rename(&other, &path).unwrap();
        let error = store.check_file_not_replaced().unwrap_err().to_string();
        assert!(error.contains("another one; put it back, or stop riskgate, move "), "{error}");
        assert!(add_account(&mut store, "late").is_err() && store.checkpoint_wal().is_err());
        assert!(store.ring_version().is_err());
        std::mem::forget(store); // As after a kill.
        let wait = Duration::from_secs(5);
        let errors = [
            Sqlite::open(&path, wait).err(),
            Sqlite::open_to_read(&path, wait).err(),
            Sqlite::open_to_copy(&path, wait).err(),
            Sqlite::open_to_check(&path, wait).err(),
        ];
        for error in errors {
            let error = error.unwrap().to_string();
            assert!(error.contains("put that file back, or stop riskgate, move "), "{error}");
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "the other file is unchanged");
        // The former file continues with its log.
        std::fs::rename(&path, &other).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        let mut store = open_for_test(&path).unwrap();
        assert_eq!(store.ring_rows().unwrap().unwrap().accounts.len(), 2);
        store.check_file_not_replaced().unwrap();
        // The other file can be used once the log is away.
        std::fs::rename(&other, &path).unwrap();
        store.check_file_not_replaced().unwrap_err();
        std::mem::forget(store);
        for suffix in ["-wal", "-shm"] {
            let name = |name: &str| in_folder(&format!("{name}{suffix}"));
            std::fs::rename(name("store.db"), name("aside.db")).unwrap();
        }
        let mut store = open_for_test(&path).unwrap();
        assert_eq!(store.ring_rows().unwrap().unwrap().accounts.len(), 0);
        add_account(&mut store, "next").unwrap();
        let left = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name());
        assert!(left.into_iter().all(|it| !it.to_string_lossy().contains("note")));
    }

    #[test]
    fn the_changes_of_a_removed_log_are_saved_in_the_file() {
        for removed in [&["-wal"][..], &["-wal", "-shm"]] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("store.db");
            let store = open_with_account_in_log(&path);
            // Another process, such as the other gateway of an upgrade.
            let mut second = open_for_test(&path).unwrap();
            for suffix in removed {
                std::fs::remove_file(folder.path().join(format!("store.db{suffix}"))).unwrap();
            }
            let error = store.check_file_not_replaced().unwrap_err().to_string();
            assert!(error.contains("its changes are saved in the store: restart"), "{error}");
            assert_eq!(read_accounts_without_log(&path), ["new", "old"]);
            assert!(add_account(&mut second, "late").is_err());
        }
    }

    #[test]
    fn the_changes_of_a_removed_log_never_go_beside_a_new_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let (log, aside) = (folder.path().join("store.db-wal"), folder.path().join("aside"));
        let store = open_with_account_in_log(&path);
        std::fs::rename(&log, &aside).unwrap();
        std::fs::write(&log, "the log of another process").unwrap();
        let error = store.check_file_not_replaced().unwrap_err().to_string();
        assert!(error.contains("put it back before you restart riskgate"), "{error}");
        assert_eq!(read_accounts_without_log(&path), ["old"]);
        drop(store);
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "the log of another process");
        assert_eq!(read_accounts_without_log(&path), ["old"]);
        std::fs::rename(&aside, &log).unwrap();
        let mut store = open_for_test(&path).unwrap();
        assert_eq!(store.ring_rows().unwrap().unwrap().accounts.len(), 2);
    }

    #[test]
    fn a_write_fails_once_a_file_beside_the_store_was_removed() {
        for suffix in ["-wal", "-shm"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("store.db");
            let mut store = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
            let mut other = Sqlite::open(&path, Duration::from_secs(5)).unwrap();
            drop(other.begin_write_transaction("testing").unwrap());
            std::fs::remove_file(folder.path().join(format!("store.db{suffix}"))).unwrap();
            let error = store.begin_write_transaction("testing").err().unwrap().to_string();
            assert!(error.contains(suffix) && error.contains("restart riskgate"), "{error}");
            let anchor = TimeAnchor::parse("1796083199 5 boot").expect("an anchor");
            assert!(store.remember_time(&anchor).is_err());
            assert!(store.check_file_not_replaced().is_err());
            assert!(other.begin_write_transaction("testing").is_err());
        }
    }

    #[test]
    fn threads_can_create_the_same_store_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| Sqlite::open(&path, Duration::from_secs(5)).map(drop).unwrap());
            }
        });
        let leftovers = std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok);
        assert!(leftovers.into_iter().all(|e| !e.file_name().to_string_lossy().contains(".new-")));
    }
}
