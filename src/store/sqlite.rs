//! The embedded store: one SQLite file in WAL mode, `synchronous=FULL`.
//!
//! Owns the verbs and their transactions. Several processes may have the file open at once: a
//! gateway and its successor during a hand-over, and the command line beside them. What a verb
//! has returned is on disk. It never replaces or empties a file that it does not understand.

mod learned;
mod ledger;
mod open;
mod rotate;
mod rows;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{
    AccountRow, Contents, Credit, Damaged, KeyRow, LimitRow, RingChanges, RingMark, RingRows,
    StoreError, TopRow, operations,
};
use rows::{
    insert_key, known_key, read_accounts, read_keys, read_marks, read_top, touch_account, unsigned,
};

/// An open store. One connection: give each thread its own.
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    /// Device and inode of the file that was opened.
    file: Option<(u64, u64)>,
}

impl Sqlite {
    /// Opens the store, creating it and its folder where there is none.
    ///
    /// `busy` is how long a statement waits for another process's lock.
    pub fn open(path: &Path, busy: Duration) -> Result<Sqlite, StoreError> {
        match open::is_there(path)? {
            true => open::close_to_others(path),
            false => open::create(path)?,
        }
        Sqlite::connect(path, busy)
    }

    /// As [`Sqlite::open`], but leaves rights as they are, and makes no store where none is: there
    /// it only looks whether one could be made.
    pub(super) fn open_to_check(path: &Path, busy: Duration) -> Result<Option<Sqlite>, StoreError> {
        match open::is_there(path)? {
            true => Sqlite::connect(path, busy).map(Some),
            false => open::check_creatable(path).map(|()| None),
        }
    }

    fn connect(path: &Path, busy: Duration) -> Result<Sqlite, StoreError> {
        let begun = Instant::now();
        loop {
            match Sqlite::try_open(path, busy) {
                // While the log is opened or closed SQLite says "busy" without waiting.
                Err(error) if error.is_busy() && begun.elapsed() < busy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                outcome => return outcome,
            }
        }
    }

    fn try_open(path: &Path, busy: Duration) -> Result<Sqlite, StoreError> {
        let failed = |source| open::explain(path, source);
        let mut connection = open::connect(path).map_err(failed)?;
        connection.busy_timeout(busy.max(Duration::from_millis(1))).map_err(failed)?;
        open::prepare(&mut connection, path)?;
        Ok(Sqlite { connection, path: path.to_owned(), file: identity(path) })
    }

    /// Reads the whole file and says whether it is intact, and may be written.
    pub(super) fn check_usable(&self) -> Result<(), StoreError> {
        open::check_usable(&self.connection, &self.path)
    }

    /// From now on a statement waits for a lock by asking every millisecond, five seconds long: a
    /// command beside a busy gateway must find the short moments in which the lock is free.
    pub(super) fn be_patient(&mut self) -> Result<(), StoreError> {
        const TRIES: i32 = 5_000;
        let ask_again = |tries| {
            std::thread::sleep(Duration::from_millis(1));
            tries < TRIES
        };
        let failed = self.failed("opening the store");
        self.connection.busy_handler(Some(ask_again)).map_err(failed)
    }

    /// Opens a store that must exist already, for reading what is there.
    pub fn open_existing(path: &Path, busy: Duration) -> Result<Sqlite, StoreError> {
        if !open::is_there(path)? {
            return Err(StoreError::Unusable {
                place: path.display().to_string(),
                expected: "a store",
                found: "no file".to_owned(),
            });
        }
        Sqlite::open(path, busy)
    }

    /// Fails when the path does not lead to the opened file any more: it was deleted, or another
    /// one was put in its place, and what we write would be lost with it.
    pub(super) fn check_in_place(&self) -> Result<(), StoreError> {
        if identity(&self.path) == self.file {
            return Ok(());
        }
        Err(StoreError::Unusable {
            place: self.path.display().to_string(),
            expected: "the file that was opened",
            found: "another one, or none; put it back, or restart to use what is there".to_owned(),
        })
    }

    /// Moves what was written into the one file, so that it alone can be moved or backed up once
    /// nobody has it open. Another process that reads just now leaves it as it is.
    pub(super) fn checkpoint(&self) -> Result<(), StoreError> {
        let done = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        done.map_err(self.failed("moving the log into the file"))
    }

    fn failed(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        let path = self.path.display().to_string();
        move |source| StoreError::Failed { place: path.clone(), doing, source }
    }

    fn begin(&mut self, doing: &'static str) -> Result<Transaction<'_>, StoreError> {
        let failed = self.failed(doing);
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)
    }

    // --- keys and accounts ---

    pub(super) fn ring_mark(&self) -> Result<Option<RingMark>, StoreError> {
        read_mark(&self.connection).map_err(self.failed("reading the key version"))
    }

    pub(super) fn ring_rows(&mut self) -> Result<Option<RingRows>, StoreError> {
        Ok(self.read_changes(0)?.map(|all| {
            let RingChanges { mark, accounts, keys, damaged, .. } = all;
            let RingMark { store_id, version, history } = mark;
            RingRows { store_id, version, history, accounts, keys, damaged }
        }))
    }

    pub(super) fn ring_changes(&mut self, since: u64) -> Result<RingChanges, StoreError> {
        self.read_changes(since)?.ok_or_else(|| StoreError::Unusable {
            place: self.path.display().to_string(),
            expected: "the keys and accounts that were written",
            found: "no mark".to_owned(),
        })
    }

    fn read_changes(&mut self, since: u64) -> Result<Option<RingChanges>, StoreError> {
        let failed = self.failed("reading the keys");
        let read = |connection: &mut Connection| -> rusqlite::Result<Option<RingChanges>> {
            let transaction = connection.transaction()?;
            let Some(mark) = read_mark(&transaction)? else { return Ok(None) };
            let mut damaged = Damaged::default();
            Ok(Some(RingChanges {
                mark,
                since: change_id(&transaction, since)?,
                accounts: read_accounts(&transaction, since, &mut damaged)?,
                keys: read_keys(&transaction, since, &mut damaged)?,
                damaged,
            }))
        };
        read(&mut self.connection).map_err(failed)
    }

    pub(super) fn add_keys(&mut self, keys: &[(KeyRow, Option<String>)]) -> Result<(), StoreError> {
        let failed = self.failed("adding keys");
        let transaction = self.begin("adding keys")?;
        let version = bump_ring(&transaction).map_err(&failed)?;
        for (key, plan) in keys {
            if let Some(id) = known_key(&transaction, key).map_err(&failed)? {
                return Err(operations::not_new(&key.id, &id));
            }
            insert_key(&transaction, key, plan.as_deref(), version).map_err(&failed)?;
        }
        transaction.commit().map_err(failed)
    }

    pub(super) fn end_key(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let failed = self.failed("ending a key");
        let transaction = self.begin("ending a key")?;
        let version = bump_ring(&transaction).map_err(&failed)?;
        let changed = transaction
            .execute(
                "UPDATE api_key SET revoked_at = coalesce(revoked_at, ?3),
                 expires_at = CASE WHEN ?2 IS NULL THEN expires_at
                              ELSE min(coalesce(expires_at, ?2), ?2) END,
                 version = ?4 WHERE id = ?1",
                params![id, expires_at, revoked_at, version],
            )
            .map_err(&failed)?;
        if changed == 0 {
            return Err(operations::unknown_key(id));
        }
        transaction.commit().map_err(failed)
    }

    pub(super) fn set_account(
        &mut self,
        name: &str,
        plan: Option<&str>,
        limit: Option<Option<LimitRow>>,
    ) -> Result<(), StoreError> {
        let failed = self.failed("setting an account");
        let transaction = self.begin("setting an account")?;
        let set = |transaction: &Transaction<'_>| -> rusqlite::Result<()> {
            let version = bump_ring(transaction)?;
            touch_account(transaction, name, plan, version)?;
            if let Some(limit) = limit {
                let (calls, unlimited) = rows::limit_columns(limit);
                transaction.execute(
                    "UPDATE account SET calls = ?2, unlimited = ?3 WHERE name = ?1",
                    params![name, calls, unlimited],
                )?;
            }
            Ok(())
        };
        set(&transaction).map_err(&failed)?;
        transaction.commit().map_err(failed)
    }

    pub(super) fn restore(
        &mut self,
        keys: &[KeyRow],
        accounts: &[AccountRow],
    ) -> Result<usize, StoreError> {
        let failed = self.failed("writing back what it lost");
        let transaction = self.begin("writing back what it lost")?;
        let version = bump_ring(&transaction).map_err(&failed)?;
        if rows::restore(&transaction, keys, accounts, version).map_err(&failed)? > 0 {
            transaction.commit().map_err(failed)?;
        }
        Ok(0)
    }

    // --- top counts ---

    pub(super) fn top_rows(&self) -> Result<Vec<TopRow>, StoreError> {
        read_top(&self.connection).map_err(self.failed("reading the top counts"))
    }

    pub(super) fn top(&self, day: i64) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        let marks = read_marks(&self.connection, day);
        Ok((self.top_rows()?, marks.map_err(self.failed("reading the top counts"))?))
    }

    pub(super) fn credit_top(
        &mut self,
        credits: &[Credit],
        gone: &[String],
        day: i64,
        half_life: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        let failed = self.failed("saving the top counts");
        let transaction = self.begin("saving the top counts")?;
        let rows = rows::credit_top(&transaction, credits, gone, day, half_life);
        let rows = rows.map_err(&failed)?;
        transaction.commit().map_err(failed)?;
        Ok(rows)
    }

    // --- moving ---

    pub(super) fn fill(&mut self, contents: &Contents) -> Result<(), StoreError> {
        let failed = self.failed("filling the store");
        let place = self.path.display().to_string();
        let transaction = self.begin("filling the store")?;
        if !rows::is_empty(&transaction).map_err(&failed)? {
            return Err(operations::not_empty(&place));
        }
        ledger::raise_month(&transaction, contents.month).map_err(&failed)?;
        // Who serves the empty ring sees the full one as a later version of it.
        let version = bump_ring(&transaction).map_err(&failed)?;
        rows::fill(&transaction, contents, version).map_err(&failed)?;
        transaction.commit().map_err(failed)
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

fn read_mark(connection: &Connection) -> rusqlite::Result<Option<RingMark>> {
    let Some(store_id) = meta(connection, "store_id")? else { return Ok(None) };
    let version = unsigned(meta(connection, "ring_version")?.unwrap_or(0));
    Ok(Some(RingMark { store_id, version, history: change_id(connection, version)? }))
}

/// The id of the change that led to a version, if it is one of the latest.
fn change_id(connection: &Connection, version: u64) -> rusqlite::Result<Option<String>> {
    meta(connection, &format!("change:{version}"))
}

fn meta<T: rusqlite::types::FromSql>(
    connection: &Connection,
    key: &str,
) -> rusqlite::Result<Option<T>> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()
}

/// So many of the latest changes are known by their ids.
const KEPT_CHANGES: i64 = 1_000;

/// The next version of keys and accounts. Each change has an id, which tells apart two changes
/// that led to the same version because the file was set back in between.
fn bump_ring(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    let version: i64 = transaction.query_row(
        "UPDATE meta SET value = value + 1 WHERE key = 'ring_version' RETURNING value",
        [],
        |row| row.get(0),
    )?;
    transaction.execute(
        "INSERT OR REPLACE INTO meta VALUES ('change:' || ?1, lower(hex(randomblob(16))))",
        [version],
    )?;
    transaction
        .execute("DELETE FROM meta WHERE key = 'change:' || ?1", [version - KEPT_CHANGES])?;
    Ok(version)
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
        store.check_in_place().unwrap();
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        assert!(store.check_in_place().is_err());
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
