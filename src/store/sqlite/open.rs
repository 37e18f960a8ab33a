//! Creates a store's file, opens it, and checks it. A file that is no riskgate store of a known
//! version stays unchanged.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, ffi};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::files::{self, unusable, with_suffix};
use super::schema::{
    MIGRATION_FROM_1, QUOTA_EVENT_SCHEMA, SCHEMA, SCHEMA_VERSION, TABLES_OF_VERSION_3,
    add_override_table,
};
use crate::store::audit::AuditOperation;
use crate::store::error::{CORRUPTION_ADVICE, StoreError};
use crate::support::regular_file::{check_dir_writable, non_regular_kind, parent_dir};

/// The smallest size of the file that ends in -shm, in bytes.
const SHARED_MEMORY_BYTES: u64 = 32 * 1024;
const APPLICATION_ID: i64 = 0x7267_6174; // "rgat"

/// Creates a store under a temporary name, then gives the file the store's name. So other processes
/// see either a complete store or none. The mode of the file is 0600. If riskgate creates the
/// directory, the mode of the directory is 0700.
pub(super) fn create_store(path: &Path) -> Result<(), StoreError> {
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(parent_dir(path))
        .map_err(store_creation_error(path))?;
    // The temporary name is not derived from the store's name, which may have the maximal length
    // already.
    let name = format!(".riskgate.new-{}-{:?}", std::process::id(), std::thread::current().id());
    let temporary = parent_dir(path).join(name);
    let created = create_temporary_store(&temporary, path);
    let linked = created.and_then(|()| match link_or_rename(&temporary, path) {
        // Another process has created the store at the same time.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if !is_unsupported(&error) => Err(store_creation_error(path)(error)),
        outcome => outcome.map_err(|error| {
            let expected = "a file system with hard links, or one that renames without replacing";
            unusable(path, expected, error.to_string())
        }),
    });
    // The temporary name goes in any case, so that a failed attempt leaves nothing behind.
    for suffix in ["", "-wal", "-shm", LONGEST_SQLITE_SUFFIX] {
        let _ = std::fs::remove_file(with_suffix(&temporary, suffix));
    }
    linked
}

/// Gives a file the name `path`, unless a file has that name. Not every file system has hard links.
fn link_or_rename(temporary: &Path, path: &Path) -> io::Result<()> {
    match std::fs::hard_link(temporary, path) {
        Err(error) if is_unsupported(&error) => {
            Ok(renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)?)
        }
        outcome => outcome,
    }
}

/// Returns true for the errors with which kernels and file systems refuse what they do not support.
/// Linux answers EPERM or EMLINK if a file system has no hard links.
fn is_unsupported(error: &io::Error) -> bool {
    let errors = [Errno::PERM, Errno::MLINK, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
    error.raw_os_error().is_some_and(|code| errors.contains(&Errno::from_raw_os_error(code)))
}

/// Returns a function that converts an I/O error into the error that no store can be created at
/// `path`.
fn store_creation_error(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| {
        let folder = path.ancestors().skip(1).find(|it| it.is_dir()).filter(|_| {
            use ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
            matches!(error.kind(), NotFound | PermissionDenied | ReadOnlyFilesystem)
        });
        let advice = folder.map(|it| {
            let folder = it.display();
            format!("; let this user write in {folder}, or write another path")
        });
        let found = format!("{error}{}", advice.unwrap_or_default());
        unusable(path, "a directory that we may create and write", found)
    }
}

/// Creates a complete store at the path `temporary`. Errors name the final `path`.
fn create_temporary_store(temporary: &Path, path: &Path) -> Result<(), StoreError> {
    // SQLite treats an empty file as a new store, and gives the files beside it the same
    // permissions.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(temporary).map_err(store_creation_error(path))?;
    let fill = || {
        let mut connection = connect_to_existing_file(temporary)?;
        enable_wal(&connection)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        create_schema(&transaction)?;
        transaction.commit()?;
        // Only the file itself gets the store's name, so the file needs all pages of the log.
        // SQLite moves them when a connection closes, but ignores errors then.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        connection.close().map_err(|(_, error)| error)
    };
    fill().map_err(|source| open_error(path, source))
}

/// Connects to an existing file. With its default flags, SQLite would create an empty file, which
/// is not a store.
pub(super) fn connect_to_existing_file(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// Returns true if the store's file exists. Fails if the path is invalid or leads to anything but a
/// file, or if the log is lost, or belongs to another file or to none.
pub(super) fn store_file_exists(path: &Path) -> Result<bool, StoreError> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match path.symlink_metadata() {
                // The link may lead to a disk that has the store and is mounted later.
                Ok(found) if found.is_symlink() => {
                    Err(unusable(path, "a store", "a link that leads nowhere"))
                }
                // Another process has created the store at this moment.
                Ok(_) => store_file_exists(path),
                Err(_) => {
                    check_path_of_new_store(path)?;
                    files::check_no_log_is_left(path)?;
                    Ok(path.exists())
                }
            };
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(store_creation_error(path)(error));
        }
        Err(error) => return Err(unusable(path, "a store", error.to_string())),
    };
    match non_regular_kind(metadata.file_type()) {
        None => {
            files::check_none_is_lost(path)?;
            files::check_log_is_of_file(path).map(|()| true)
        }
        Some(kind) => Err(unusable(path, "a regular file", kind)),
    }
}

/// The longest suffix that SQLite adds to a store's name for a file beside it.
const LONGEST_SQLITE_SUFFIX: &str = "-journal";
/// The most bytes that SQLite accepts in the path of a file.
const MAX_SQLITE_PATH_BYTES: usize = 512;

/// Fails if the file system or SQLite does not accept the path of a store that does not exist yet.
/// The file system can't check a name in a directory that does not exist. So riskgate looks up the
/// name of each missing directory, and that of the file, in the nearest existing directory.
fn check_path_of_new_store(path: &Path) -> Result<(), StoreError> {
    let folder = find_nearest_existing_folder(path);
    let missing_part = path.strip_prefix(folder).unwrap_or(path);
    let journal = with_suffix(missing_part, LONGEST_SQLITE_SUFFIX);
    for name in &journal {
        match folder.join(name).symlink_metadata() {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(store_creation_error(path)(error))?
            }
            _ => {}
        }
    }
    let full_path = folder.canonicalize().map_err(store_creation_error(path))?.join(journal);
    match path.file_name() {
        Some(_) if full_path.as_os_str().len() <= MAX_SQLITE_PATH_BYTES => Ok(()),
        Some(_) => Err(store_creation_error(path)(ErrorKind::InvalidFilename.into())),
        None => Err(store_creation_error(path)(ErrorKind::IsADirectory.into())),
    }
}

/// The nearest directory above `path` that exists; `.` if there is none.
fn find_nearest_existing_folder(path: &Path) -> &Path {
    let is_existing = |folder: &&Path| folder.symlink_metadata().is_ok();
    let ancestors = parent_dir(path).ancestors().filter(|it| !it.as_os_str().is_empty());
    ancestors.into_iter().find(is_existing).unwrap_or(Path::new("."))
}

/// Fails if the store's directory, or the nearest existing directory above it, is not writable.
pub(super) fn check_store_can_be_created(path: &Path) -> Result<(), StoreError> {
    check_dir_writable(find_nearest_existing_folder(path)).map_err(store_creation_error(path))
}

/// Removes the read permission of other users from a store, because earlier versions of riskgate
/// created stores that all users could read. If other users may also write or execute the file, an
/// administrator set this on purpose, and the permissions stay.
pub(super) fn remove_others_read_permission(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let name = with_suffix(path, suffix);
        let Ok(metadata) = std::fs::metadata(&name) else { continue };
        let mode = metadata.permissions().mode();
        if metadata.is_file() && mode & 0o007 == 0o004 {
            // Only the owner of the file can change this; for other users the error is ignored.
            let _ = std::fs::set_permissions(&name, Permissions::from_mode(mode & 0o7770));
        }
    }
}

/// Checks that the file is a riskgate store, migrates it if needed, and sets up the connection.
pub(super) fn check_migrate_and_configure(
    connection: &mut Connection,
    path: &Path,
) -> Result<(), StoreError> {
    let failed = |source| open_error(path, source);
    if read_checked_schema_version(connection, path)? < SCHEMA_VERSION {
        migrate_schema(connection).map_err(failed)?;
    }
    add_override_table(connection).map_err(failed)?;
    enable_wal(connection).map_err(failed)?;
    // SQLite overwrites what is deleted. Every connection needs this setting, also one that only
    // adds rows: SQLite then moves other rows to new pages, and would leave copies in the old
    // pages.
    connection.pragma_update(None, "secure_delete", true).map_err(failed)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)
}

/// Switches on the write-ahead log. SQLite keeps the old journal without an error if the file
/// system has no shared memory.
fn enable_wal(connection: &Connection) -> rusqlite::Result<()> {
    let read_mode = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
    match connection.pragma_update_and_check(None, "journal_mode", "WAL", read_mode)?.as_str() {
        "wal" => Ok(()),
        _ => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_SHMMAP), None)),
    }
}

/// Returns true if SQLite could not use the memory that the processes of a store share.
fn is_shared_memory_error(error: &rusqlite::Error) -> bool {
    const CODES: [i32; 4] = [
        ffi::SQLITE_IOERR_SHMOPEN,
        ffi::SQLITE_IOERR_SHMSIZE,
        ffi::SQLITE_IOERR_SHMLOCK,
        ffi::SQLITE_IOERR_SHMMAP,
    ];
    error.sqlite_error().is_some_and(|error| CODES.contains(&error.extended_code))
}

/// Migrates a store of an earlier version, unless another process has done so meanwhile.
fn migrate_schema(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = read_pragma(&transaction, "user_version")?;
    if version < 2 {
        transaction.execute_batch(MIGRATION_FROM_1)?;
    }
    if version < 3 {
        transaction.execute_batch(TABLES_OF_VERSION_3)?;
        transaction.execute_batch(QUOTA_EVENT_SCHEMA)?;
    }
    if version < SCHEMA_VERSION {
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()
}

/// Returns true if a gateway would migrate this file to a later version. False if the version can't
/// be read.
pub(super) fn is_of_older_version(path: &Path) -> bool {
    let version = connect_to_read(path)
        .map_err(|source| open_error(path, source))
        .and_then(|connection| read_checked_schema_version(&connection, path));
    version.is_ok_and(|version| version < SCHEMA_VERSION)
}

/// Copies the store into memory, and migrates the copy if the store has an earlier version. The
/// file stays as it is. Waits for the locks of other processes at most for `busy_timeout`.
pub(super) fn copy_into_memory(
    path: &Path,
    busy_timeout: Duration,
) -> Result<Connection, StoreError> {
    // All pages in one step: a write of another process would begin the copy again.
    const ALL_PAGES: i32 = -1;
    let failed = |source| open_error(path, source);
    let source = connect_to_read(path).map_err(failed)?;
    source.busy_timeout(busy_timeout).map_err(failed)?;
    read_checked_schema_version(&source, path)?;
    let mut copy = Connection::open_in_memory().map_err(failed)?;
    let backup = Backup::new(&source, &mut copy).map_err(failed)?;
    let started = Instant::now();
    while backup.step(ALL_PAGES).map_err(failed)? != StepResult::Done {
        if started.elapsed() >= busy_timeout {
            let busy = ffi::Error::new(ffi::SQLITE_BUSY);
            return Err(failed(rusqlite::Error::SqliteFailure(busy, None)));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(backup);
    migrate_schema(&mut copy).map_err(failed)?;
    add_override_table(&copy).map_err(failed)?;
    Ok(copy)
}

/// Connects to an existing file, which stays as it is. If no log is beside the file, no process has
/// the store open. SQLite then writes nothing beside the file, which may be on a read-only disk.
fn connect_to_read(path: &Path) -> rusqlite::Result<Connection> {
    // SQLite has the log beside the file to which a link leads.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let may_have_log = std::fs::exists(with_suffix(path, "-wal")).unwrap_or(true);
    if may_have_log {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        return Connection::open_with_flags(path, flags);
    }
    let escaped = path.display().to_string().replace('%', "%25").replace('?', "%3f");
    let url = format!("file:{}?immutable=1", escaped.replace('#', "%23"));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(url, flags)
}

/// Returns true if the file is a backup that no gateway has used since. The last record of its
/// audit says that it was filled, and nobody has told it the time. A backup of a version without
/// audit passes if nobody has told it the time. Does not change the file.
pub fn is_unused_backup(path: &Path) -> bool {
    read_is_unused_backup(path).unwrap_or(false)
}

fn read_is_unused_backup(path: &Path) -> rusqlite::Result<bool> {
    const FIRST_VERSION_WITH_AUDIT: i64 = 3;
    const LAST_OPERATION: &str = "SELECT operation FROM audit ORDER BY id DESC LIMIT 1";
    const IS_TIME_KNOWN: &str = "SELECT EXISTS (SELECT 1 FROM meta WHERE key = 'time')";
    let connection = connect_to_read(path)?;
    let application_id = read_pragma(&connection, "application_id")?;
    let version = read_pragma(&connection, "user_version")?;
    let is_filled = version < FIRST_VERSION_WITH_AUDIT || {
        let operation: String = connection.query_row(LAST_OPERATION, [], |row| row.get(0))?;
        operation == AuditOperation::StoreFill.as_str()
    };
    let is_time_known: bool = connection.query_row(IS_TIME_KNOWN, [], |row| row.get(0))?;
    Ok(application_id == APPLICATION_ID && is_filled && !is_time_known)
}

fn read_checked_schema_version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let failed = |source| open_error(path, source);
    let application_id = read_pragma(connection, "application_id").map_err(failed)?;
    let version = read_pragma(connection, "user_version").map_err(failed)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    let (expected, found) = match version {
        _ if tables == 0 => ("a riskgate store", format!("an empty one; {CORRUPTION_ADVICE}")),
        _ if application_id != APPLICATION_ID => {
            ("a riskgate store", "another program's database".to_owned())
        }
        ..=SCHEMA_VERSION => return Ok(version),
        _ => (
            "a store of version 3 or before",
            format!("version {version}, made by a newer riskgate; run that one"),
        ),
    };
    Err(unusable(path, expected, found))
}

fn read_pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Fails if the file is damaged or read-only. Checks every page, so that riskgate finds damage at
/// its start and not during a request. If riskgate may not write the file, SQLite opens the file
/// read-only, and would report that only at the first write.
pub(super) fn check_intact_and_writable(
    connection: &Connection,
    path: &Path,
) -> Result<(), StoreError> {
    if connection.is_readonly("main").map_err(|source| open_error(path, source))? {
        return Err(read_only_error(path));
    }
    let finding: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|source| open_error(path, source))?;
    if finding == "ok" {
        return Ok(());
    }
    let found = format!("{}; {CORRUPTION_ADVICE}", finding.replace('\n', " "));
    Err(unusable(path, "an intact store", found))
}

/// Converts an error of opening into one that says what to do.
pub(super) fn open_error(path: &Path, source: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseCorrupt, NotADatabase, ReadOnly};
    match source.sqlite_error_code() {
        // SQLite has one error for a full disk and for a file system without shared memory.
        _ if is_shared_memory_error(&source) && is_disk_full(path) => {
            full_disk_error(path, "opening the store")
        }
        _ if is_shared_memory_error(&source) => {
            let expected =
                "a file system on which processes can share memory, as local disks have it";
            unusable(path, expected, "one that refuses the file that ends in -shm")
        }
        Some(CannotOpen) => {
            unusable(path, "a file that we may read and write", "one that can't be opened")
        }
        Some(ReadOnly) => read_only_error(path),
        Some(DatabaseCorrupt | NotADatabase) => {
            unusable(path, "an intact store", format!("{source}; {CORRUPTION_ADVICE}"))
        }
        _ => StoreError::Sqlite {
            location: path.display().to_string(),
            operation: "opening the store",
            source,
        },
    }
}

/// Fails if the disk of the store is full.
pub(super) fn check_disk_has_space(path: &Path, operation: &'static str) -> Result<(), StoreError> {
    if is_disk_full(path) { Err(full_disk_error(path, operation)) } else { Ok(()) }
}

fn full_disk_error(path: &Path, operation: &'static str) -> StoreError {
    StoreError::Unavailable {
        location: path.display().to_string(),
        operation,
        found: "expected free space on the disk, but found none".to_owned(),
    }
}

/// Returns true if the disk of a file has no space for what SQLite keeps beside it. Root may use
/// the blocks that a file system reserves. Some file systems tell no size.
fn is_disk_full(path: &Path) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    rustix::fs::statvfs(parent_dir(path)).is_ok_and(|disk| {
        let blocks = if is_root { disk.f_bfree } else { disk.f_bavail };
        disk.f_blocks > 0 && blocks.saturating_mul(disk.f_frsize) < SHARED_MEMORY_BYTES
    })
}

pub(super) fn read_only_error(path: &Path) -> StoreError {
    let expected = "a file that we may write, in a directory that we may write";
    unusable(path, expected, "a read-only one")
}

fn create_schema(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(SCHEMA)?;
    transaction.execute_batch(TABLES_OF_VERSION_3)?;
    transaction.execute_batch(QUOTA_EVENT_SCHEMA)?;
    add_override_table(transaction)?;
    transaction.execute(
        "INSERT INTO meta VALUES ('store_id', lower(hex(randomblob(16)))), ('ring_version', 1)",
        [],
    )?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)
}
