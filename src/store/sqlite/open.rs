//! Opening a store's file: ours, intact, of our version, or left as it is.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::store::error::StoreError;
use crate::support::regular_file::{check_dir_writable, non_regular_kind, parent_dir};

const APPLICATION_ID: i64 = 0x7267_6174; // "rgat"
const CORRUPTION_ADVICE: &str = "restore a backup, or move the file away to start afresh";
const SCHEMA_VERSION: i64 = 2;
const SCHEMA: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE account (
    name TEXT PRIMARY KEY, plan TEXT, calls INTEGER, unlimited INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE INDEX account_version ON account (version);
CREATE TABLE api_key (
    id TEXT PRIMARY KEY, account TEXT NOT NULL, label TEXT, digest BLOB NOT NULL UNIQUE,
    origins TEXT NOT NULL, require_origin INTEGER NOT NULL, created_at INTEGER NOT NULL,
    expires_at INTEGER, revoked_at INTEGER, version INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE INDEX api_key_version ON api_key (version);
CREATE TABLE ledger (
    account TEXT NOT NULL, month INTEGER NOT NULL, node BLOB NOT NULL, sequence INTEGER NOT NULL,
    leased INTEGER NOT NULL, spent INTEGER NOT NULL, PRIMARY KEY (account, month, node)
) WITHOUT ROWID;
CREATE TABLE top_count (
    domain TEXT PRIMARY KEY, count REAL NOT NULL, at INTEGER NOT NULL, accounts BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE top_seen (
    day INTEGER NOT NULL, mark INTEGER NOT NULL, PRIMARY KEY (day, mark)
) WITHOUT ROWID;
";

/// What version 2 has beyond version 1: the version of the ring that last changed a row.
const MIGRATION_FROM_1: &str = "
ALTER TABLE account ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE api_key ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
CREATE INDEX account_version ON account (version);
CREATE INDEX api_key_version ON api_key (version);
";

/// Makes a store where there is none: beside its place and then moved there, so that whoever
/// looks sees a whole one or none, and an empty file is never one of ours. It is for its owner
/// alone, and so is a directory that is made for it.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let mut folders = DirBuilder::new();
    folders.recursive(true).mode(0o700).create(parent_dir(path)).map_err(folder_error(path))?;
    // Not after the store, whose name may be as long as names can be.
    let name = format!(".riskgate.new-{}-{:?}", std::process::id(), std::thread::current().id());
    let temporary = parent_dir(path).join(name);
    let made = create_temporary(&temporary, path);
    let moved = made.and_then(|()| match std::fs::hard_link(&temporary, path) {
        // Two processes may create at once: who comes second finds it done.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome.map_err(folder_error(path)),
    });
    // What is left of a failed attempt is only in the way.
    let _ = std::fs::remove_file(&temporary);
    moved
}

fn folder_error(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Unusable {
        location: path.display().to_string(),
        expected: "a directory that we may create and write",
        found: error.to_string(),
    }
}

fn create_temporary(temporary: &Path, path: &Path) -> Result<(), StoreError> {
    // SQLite takes an empty file for a new store, and gives what it puts beside it the same rights.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(temporary).map_err(folder_error(path))?;
    let fill = || {
        let mut connection = connect(temporary)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        create_schema(&transaction)?;
        transaction.commit()?;
        connection.close().map_err(|(_, error)| error)
    };
    fill().map_err(|source| open_error(path, source))
}

/// Connects to a file that is there. SQLite would make an empty one where none is, which is no
/// store of ours.
pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// Whether there is a store's file, or a fault if there could never be one.
pub(super) fn exists(path: &Path) -> Result<bool, StoreError> {
    let unusable = |expected, found| StoreError::Unusable {
        location: path.display().to_string(),
        expected,
        found,
    };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // The disk that it leads to may come later, with the store on it.
            return match path.symlink_metadata() {
                Ok(_) => Err(unusable("a store", "a link that leads nowhere".to_owned())),
                Err(_) => check_names(path).map(|()| false),
            };
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(folder_error(path)(error));
        }
        Err(error) => return Err(unusable("a store", error.to_string())),
    };
    match non_regular_kind(metadata.file_type()) {
        None => Ok(true),
        Some(kind) => Err(unusable("a regular file", kind.to_owned())),
    }
}

/// What SQLite adds to a store's name for a file beside it.
const LONGEST_SUFFIX: &str = "-journal";
/// SQLite takes no more bytes in the path of a file.
const MAX_PATH_BYTES: usize = 512;

/// Whether the file system and SQLite take the names of a store that is not there yet. A system
/// looks at no name in a directory that is not there, so each is tried in the last one that is.
fn check_names(path: &Path) -> Result<(), StoreError> {
    let folder = nearest_existing_folder(path);
    let below = path.strip_prefix(folder).unwrap_or(path);
    let mut journal = below.as_os_str().to_owned();
    journal.push(LONGEST_SUFFIX);
    for name in Path::new(&journal) {
        match folder.join(name).symlink_metadata() {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(folder_error(path)(error))?,
            _ => {}
        }
    }
    let whole = folder.canonicalize().map_err(folder_error(path))?.join(journal);
    match path.file_name() {
        Some(_) if whole.as_os_str().len() <= MAX_PATH_BYTES => Ok(()),
        Some(_) => Err(folder_error(path)(ErrorKind::InvalidFilename.into())),
        None => Err(folder_error(path)(ErrorKind::IsADirectory.into())),
    }
}

/// The directory of a path, or the last one above it that is there.
fn nearest_existing_folder(path: &Path) -> &Path {
    let is_there = |folder: &&Path| folder.symlink_metadata().is_ok();
    let above = parent_dir(path).ancestors().filter(|it| !it.as_os_str().is_empty());
    above.into_iter().find(is_there).unwrap_or(Path::new("."))
}

/// Whether a store could be made where none is: in its directory, or in the first one to be made.
pub(super) fn check_creatable(path: &Path) -> Result<(), StoreError> {
    check_dir_writable(nearest_existing_folder(path)).map_err(folder_error(path))
}

/// Takes from other users the right to read a store that was made before stores were their
/// owner's alone. Where they may write, somebody wanted it so.
pub(super) fn remove_others_read(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let Ok(metadata) = std::fs::metadata(&name) else { continue };
        let mode = metadata.permissions().mode();
        if metadata.is_file() && mode & 0o007 == 0o004 {
            // Only its owner can; others use it as it is.
            let _ = std::fs::set_permissions(&name, Permissions::from_mode(mode & 0o7770));
        }
    }
}

/// Makes a connection ready, and checks whose file it is.
pub(super) fn prepare_connection(
    connection: &mut Connection,
    path: &Path,
) -> Result<(), StoreError> {
    let failed = |source| open_error(path, source);
    if check_version(connection, path)? < SCHEMA_VERSION {
        migrate_schema(connection).map_err(failed)?;
    }
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)
}

/// Brings a store of version 1 up to date, unless another process just did.
fn migrate_schema(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version < SCHEMA_VERSION {
        transaction.execute_batch(MIGRATION_FROM_1)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()
}

fn check_version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let failed = |source| open_error(path, source);
    let application_id: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
    let version: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    let unusable = |expected, found| {
        Err(StoreError::Unusable { location: path.display().to_string(), expected, found })
    };
    if tables == 0 {
        return unusable("a riskgate store", format!("an empty one; {CORRUPTION_ADVICE}"));
    }
    if application_id != APPLICATION_ID {
        return unusable("a riskgate store", "another program's database".to_owned());
    }
    if version > SCHEMA_VERSION {
        return unusable(
            "a store of version 2 or before",
            format!("version {version}, made by a newer riskgate; run that one"),
        );
    }
    Ok(version)
}

/// Looks at every page: what is damaged is found at start and not on a request's way. SQLite opens
/// what it may not write for reading only, and says so when it is too late.
pub(super) fn check_usable(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    if connection.is_readonly("main").map_err(|source| open_error(path, source))? {
        return Err(read_only(path));
    }
    let word: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|source| open_error(path, source))?;
    if word == "ok" {
        return Ok(());
    }
    Err(StoreError::Unusable {
        location: path.display().to_string(),
        expected: "an intact store",
        found: format!("{}; {CORRUPTION_ADVICE}", word.replace('\n', " ")),
    })
}

/// What an error at opening means, and what to do.
pub(super) fn open_error(path: &Path, source: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseCorrupt, NotADatabase, ReadOnly};
    match source.sqlite_error_code() {
        Some(CannotOpen) => StoreError::Unusable {
            location: path.display().to_string(),
            expected: "a file that we may read and write",
            found: "one that can't be opened".to_owned(),
        },
        Some(ReadOnly) => read_only(path),
        Some(DatabaseCorrupt | NotADatabase) => StoreError::Unusable {
            location: path.display().to_string(),
            expected: "an intact store",
            found: format!("{source}; {CORRUPTION_ADVICE}"),
        },
        _ => StoreError::Sqlite {
            location: path.display().to_string(),
            operation: "opening the store",
            source,
        },
    }
}

fn read_only(path: &Path) -> StoreError {
    StoreError::Unusable {
        location: path.display().to_string(),
        expected: "a file that we may write, in a directory that we may write",
        found: "what is only to be read".to_owned(),
    }
}

fn create_schema(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(SCHEMA)?;
    transaction.execute(
        "INSERT INTO meta VALUES ('store_id', lower(hex(randomblob(16)))), ('ring_version', 1)",
        [],
    )?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)
}
