//! Opening a store's file: ours, intact, of our version, or left as it is.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::super::StoreError;
use crate::regular_file::check_folder;

const APPLICATION_ID: i64 = 0x7267_6174; // "rgat"
const WHAT_TO_DO: &str = "restore a backup, or move the file away to start afresh";
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
const FROM_VERSION_1: &str = "
ALTER TABLE account ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE api_key ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
CREATE INDEX account_version ON account (version);
CREATE INDEX api_key_version ON api_key (version);
";

/// Makes a store where there is none: beside its place and then moved there, so that whoever
/// looks sees a whole one or none, and an empty file is never one of ours. It is for its owner
/// alone, and so is a folder that is made for it.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let mut folders = DirBuilder::new();
    folders.recursive(true).mode(0o700).create(folder_of(path)).map_err(no_folder(path))?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}-{:?}", std::process::id(), std::thread::current().id()));
    let beside = PathBuf::from(name);
    let made = create_beside(&beside, path);
    let moved = made.and_then(|()| match std::fs::hard_link(&beside, path) {
        // Two processes may create at once: who comes second finds it done.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome.map_err(no_folder(path)),
    });
    // What is left of a failed attempt is only in the way.
    let _ = std::fs::remove_file(&beside);
    moved
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn no_folder(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Unusable {
        place: path.display().to_string(),
        expected: "a folder that we may create and write",
        found: error.to_string(),
    }
}

fn create_beside(beside: &Path, path: &Path) -> Result<(), StoreError> {
    // SQLite takes an empty file for a new store, and gives what it puts beside it the same rights.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(beside).map_err(no_folder(path))?;
    let fill = || {
        let mut connection = Connection::open(beside)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        create_schema(&transaction)?;
        transaction.commit()?;
        connection.close().map_err(|(_, error)| error)
    };
    fill().map_err(|source| explain(path, source))
}

/// Whether a store could be made there: in its folder, or where the first one to be made would be.
pub(super) fn check_creatable(path: &Path) -> Result<(), StoreError> {
    let is_there = |folder: &&Path| folder.symlink_metadata().is_ok();
    let folder = folder_of(path);
    let first = folder.ancestors().filter(|it| !it.as_os_str().is_empty()).find(is_there);
    check_folder(first.unwrap_or(Path::new("."))).map_err(no_folder(path))
}

/// Takes from other users the right to read a store that was made before stores were their
/// owner's alone. Where they may write, somebody wanted it so.
pub(super) fn close_to_others(path: &Path) {
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
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |source| explain(path, source);
    if check_version(connection, path)? < SCHEMA_VERSION {
        upgrade(connection).map_err(failed)?;
    }
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)
}

/// Brings a store of version 1 up to date, unless another process just did.
fn upgrade(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version < SCHEMA_VERSION {
        transaction.execute_batch(FROM_VERSION_1)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()
}

fn check_version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let failed = |source| explain(path, source);
    let application_id: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
    let version: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    let unusable = |expected, found| {
        Err(StoreError::Unusable { place: path.display().to_string(), expected, found })
    };
    if tables == 0 {
        return unusable("a riskgate store", format!("an empty one; {WHAT_TO_DO}"));
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

/// Looks at every page: what is damaged is found at start and not on a request's way.
pub(super) fn check_intact(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let word: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|source| explain(path, source))?;
    if word == "ok" {
        return Ok(());
    }
    Err(StoreError::Unusable {
        place: path.display().to_string(),
        expected: "an intact store",
        found: format!("{}; {WHAT_TO_DO}", word.replace('\n', " ")),
    })
}

/// What an error at opening means, and what to do.
pub(super) fn explain(path: &Path, source: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseCorrupt, NotADatabase, ReadOnly};
    match source.sqlite_error_code() {
        Some(CannotOpen) => StoreError::Unusable {
            place: path.display().to_string(),
            expected: "a file that we may read and write",
            found: "one that can't be opened".to_owned(),
        },
        Some(ReadOnly) => StoreError::Unusable {
            place: path.display().to_string(),
            expected: "a file that we may write, in a folder that we may write",
            found: "what is only to be read".to_owned(),
        },
        Some(DatabaseCorrupt | NotADatabase) => StoreError::Unusable {
            place: path.display().to_string(),
            expected: "an intact store",
            found: format!("{source}; {WHAT_TO_DO}"),
        },
        _ => StoreError::Failed {
            place: path.display().to_string(),
            doing: "opening the store",
            source,
        },
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
