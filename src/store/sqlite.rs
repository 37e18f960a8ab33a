//! The embedded store: one SQLite file in WAL mode, `synchronous=FULL`.
//!
//! Owns the verbs and their transactions. Several processes may have the file open at once: a
//! gateway and its successor during a hand-over, and the command line beside them. What a verb
//! has returned is on disk. It never replaces or empties a file that it does not understand.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::rows::{insert_key, read_accounts, read_keys, read_top, signed, unsigned, write_top};
use super::{KeyRow, LimitRow, RingRows, Standing, Statement, StoreError, TopRow, UsageRow, open};
use crate::month::Month;

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
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|error| StoreError::Unusable {
                path: path.display().to_string(),
                expected: "a folder that we may create and write",
                found: error.to_string(),
            })?;
        }
        if !path.exists() {
            open::create(path)?;
        }
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
        let connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(busy.max(Duration::from_millis(1))).map_err(failed)?;
        open::prepare(&connection, path)?;
        Ok(Sqlite { connection, path: path.to_owned(), file: identity(path) })
    }

    /// Reads the whole file and says whether it is intact.
    pub fn check_intact(&self) -> Result<(), StoreError> {
        open::check_intact(&self.connection, &self.path)
    }

    /// From now on a statement waits for a lock by asking every millisecond, five seconds long: a
    /// command beside a busy gateway must find the short moments in which the lock is free.
    pub fn be_patient(&mut self) -> Result<(), StoreError> {
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
        if !path.exists() {
            return Err(StoreError::Unusable {
                path: path.display().to_string(),
                expected: "a store",
                found: "no file".to_owned(),
            });
        }
        Sqlite::open(path, busy)
    }

    /// Fails when the path does not lead to the opened file any more: it was deleted, or another
    /// one was put in its place, and what we write would be lost with it.
    pub fn check_in_place(&self) -> Result<(), StoreError> {
        if identity(&self.path) == self.file {
            return Ok(());
        }
        Err(StoreError::Unusable {
            path: self.path.display().to_string(),
            expected: "the file that was opened",
            found: "another one, or none; put it back, or restart to use what is there".to_owned(),
        })
    }

    /// Moves what was written into the one file, so that it alone can be moved or backed up once
    /// nobody has it open. Another process that reads just now leaves it as it is.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        let done = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        done.map_err(self.failed("moving the log into the file"))
    }

    fn failed(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + use<> {
        let path = self.path.display().to_string();
        move |source| StoreError::Failed { path: path.clone(), doing, source }
    }

    fn begin(&mut self, doing: &'static str) -> Result<Transaction<'_>, StoreError> {
        let failed = self.failed(doing);
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)
    }

    // --- the ledger ---

    /// Applies one node's statements in one commit. Each is idempotent; a statement with a
    /// sequence number below what the store knows of this node changes nothing. What it answers
    /// is on disk.
    pub fn state(
        &mut self,
        node: &[u8; 16],
        month: Month,
        statements: &[Statement],
    ) -> Result<Vec<Standing>, StoreError> {
        let failed = self.failed("stating the ledger");
        let transaction = self.begin("stating the ledger")?;
        let apply = |transaction: &Transaction<'_>| -> rusqlite::Result<Vec<Standing>> {
            raise_month(transaction, month)?;
            statements.iter().map(|statement| apply_one(transaction, node, statement)).collect()
        };
        let standings = apply(&transaction).map_err(&failed)?;
        transaction.commit().map_err(&failed)?;
        Ok(standings)
    }

    /// What nodes other than `node` say that they spent.
    pub fn others_spent(
        &self,
        account: &str,
        month: Month,
        node: &[u8; 16],
    ) -> Result<u64, StoreError> {
        others(&self.connection, account, month, node)
            .map(|(_, spent)| spent)
            .map_err(self.failed("reading usage"))
    }

    /// The latest month that any node has counted in.
    pub fn latest_month(&self) -> Result<Option<Month>, StoreError> {
        let number: Option<i64> =
            meta(&self.connection, "month").map_err(self.failed("reading the month"))?;
        Ok(number.and_then(|n| u16::try_from(n).ok()).and_then(Month::from_number))
    }

    /// Spent and leased calls of a month, by account; of one account when it is named.
    pub fn usage(&self, month: Month, account: Option<&str>) -> Result<Vec<UsageRow>, StoreError> {
        let failed = self.failed("reading usage");
        let mut statement = self
            .connection
            .prepare(
                "SELECT account, sum(spent), sum(leased) FROM ledger
                 WHERE month = ?1 AND (?2 IS NULL OR account = ?2) GROUP BY account ORDER BY account",
            )
            .map_err(&failed)?;
        let rows = statement
            .query_map(params![month.number(), account], |row| {
                Ok(UsageRow {
                    account: row.get(0)?,
                    spent: unsigned(row.get(1)?),
                    leased: unsigned(row.get(2)?),
                })
            })
            .map_err(&failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    // --- keys and accounts ---

    /// The version of keys and accounts; cheap enough to ask several times a second.
    pub fn ring_version(&self) -> Result<u64, StoreError> {
        let version: Option<i64> = meta(&self.connection, "ring_version")
            .map_err(self.failed("reading the key version"))?;
        Ok(unsigned(version.unwrap_or(0)))
    }

    /// All keys and accounts.
    pub fn ring_rows(&mut self) -> Result<RingRows, StoreError> {
        let failed = self.failed("reading the keys");
        let read = |connection: &mut Connection| -> rusqlite::Result<RingRows> {
            let transaction = connection.transaction()?;
            Ok(RingRows {
                store_id: meta::<String>(&transaction, "store_id")?.unwrap_or_default(),
                version: unsigned(meta(&transaction, "ring_version")?.unwrap_or(0)),
                accounts: read_accounts(&transaction)?,
                keys: read_keys(&transaction)?,
            })
        };
        read(&mut self.connection).map_err(failed)
    }

    /// Adds keys, all or none. An account named for the first time is created; a plan given
    /// with a key becomes its account's.
    pub fn add_keys(&mut self, keys: &[(KeyRow, Option<String>)]) -> Result<(), StoreError> {
        let failed = self.failed("adding keys");
        let transaction = self.begin("adding keys")?;
        for (key, plan) in keys {
            let known = transaction
                .query_row(
                    "SELECT id FROM api_key WHERE id = ?1 OR digest = ?2",
                    params![key.id, key.digest.as_slice()],
                    |row| row.get::<_, String>(0),
                )
                .optional()
                .map_err(&failed)?;
            if let Some(id) = known {
                return Err(StoreError::Conflict(format!(
                    "key {}: expected a new key, but found it in the store as {id}",
                    key.id
                )));
            }
            insert_key(&transaction, key, plan.as_deref()).map_err(&failed)?;
        }
        bump_ring(&transaction).map_err(&failed)?;
        transaction.commit().map_err(failed)
    }

    /// Sets when a key ends: its expiry to at most `expires_at`, and `revoked_at` if given.
    pub fn end_key(
        &mut self,
        id: &str,
        expires_at: Option<i64>,
        revoked_at: Option<i64>,
    ) -> Result<(), StoreError> {
        let failed = self.failed("ending a key");
        let transaction = self.begin("ending a key")?;
        let changed = transaction
            .execute(
                "UPDATE api_key SET revoked_at = coalesce(revoked_at, ?3),
                 expires_at = CASE WHEN ?2 IS NULL THEN expires_at
                              ELSE min(coalesce(expires_at, ?2), ?2) END WHERE id = ?1",
                params![id, expires_at, revoked_at],
            )
            .map_err(&failed)?;
        if changed == 0 {
            return Err(StoreError::Conflict(format!(
                "expected the id of a key in the store, but found {id:?}"
            )));
        }
        bump_ring(&transaction).map_err(&failed)?;
        transaction.commit().map_err(failed)
    }

    /// Creates an account or changes what is given of it.
    pub fn set_account(
        &mut self,
        name: &str,
        plan: Option<&str>,
        limit: Option<Option<LimitRow>>,
    ) -> Result<(), StoreError> {
        let failed = self.failed("setting an account");
        let transaction = self.begin("setting an account")?;
        let set = |transaction: &Transaction<'_>| -> rusqlite::Result<()> {
            transaction.execute(
                "INSERT INTO account (name, plan) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET plan = coalesce(excluded.plan, plan)",
                params![name, plan],
            )?;
            if let Some(limit) = limit {
                let (calls, unlimited) = match limit {
                    Some(LimitRow::Calls(calls)) => (Some(signed(calls)), false),
                    Some(LimitRow::Unlimited) => (None, true),
                    None => (None, false),
                };
                transaction.execute(
                    "UPDATE account SET calls = ?2, unlimited = ?3 WHERE name = ?1",
                    params![name, calls, unlimited],
                )?;
            }
            bump_ring(transaction)
        };
        set(&transaction).map_err(&failed)?;
        transaction.commit().map_err(failed)
    }

    // --- top counts ---

    /// The counts of the top list, and the marks already counted on `day`.
    pub fn top(&self, day: i64) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        read_top(&self.connection, day).map_err(self.failed("reading the top counts"))
    }

    /// Replaces the given counts, drops `gone`, adds marks of `day` and forgets older days.
    pub fn save_top(
        &mut self,
        rows: &[TopRow],
        gone: &[String],
        day: i64,
        marks: &[u64],
    ) -> Result<(), StoreError> {
        let failed = self.failed("saving the top counts");
        let transaction = self.begin("saving the top counts")?;
        write_top(&transaction, rows, gone, day, marks).map_err(&failed)?;
        transaction.commit().map_err(failed)
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
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

fn raise_month(transaction: &Transaction<'_>, month: Month) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO meta VALUES ('month', ?1) ON CONFLICT (key) DO UPDATE
             SET value = excluded.value WHERE value < excluded.value",
        )?
        .execute([month.number()])?;
    Ok(())
}

fn others(
    connection: &Connection,
    account: &str,
    month: Month,
    node: &[u8; 16],
) -> rusqlite::Result<(u64, u64)> {
    connection
        .prepare_cached(
            "SELECT coalesce(sum(leased), 0), coalesce(sum(spent), 0) FROM ledger
             WHERE account = ?1 AND month = ?2 AND node <> ?3",
        )?
        .query_row(params![account, month.number(), node.as_slice()], |row| {
            Ok((unsigned(row.get(0)?), unsigned(row.get(1)?)))
        })
}

fn apply_one(
    transaction: &Transaction<'_>,
    node: &[u8; 16],
    statement: &Statement,
) -> rusqlite::Result<Standing> {
    let Statement { account, month, sequence, .. } = statement;
    let known: Option<(i64, i64)> = transaction
        .prepare_cached(
            "SELECT sequence, leased FROM ledger WHERE account = ?1 AND month = ?2 AND node = ?3",
        )?
        .query_row(params![account, month.number(), node.as_slice()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let (others_leased, others_spent) = others(transaction, account, *month, node)?;
    let (known_sequence, own_before) = known.map_or((0, 0), |(s, l)| (unsigned(s), unsigned(l)));
    if *sequence < known_sequence {
        return Ok(Standing { own: own_before, others_leased, others_spent });
    }
    let own = Standing::decide(statement, others_leased);
    transaction
        .prepare_cached(
            "INSERT INTO ledger VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET sequence = excluded.sequence, leased = excluded.leased,
             spent = excluded.spent",
        )?
        .execute(params![
            account,
            month.number(),
            node.as_slice(),
            signed(*sequence),
            signed(own),
            signed(statement.spent)
        ])?;
    Ok(Standing { own, others_leased, others_spent })
}

fn bump_ring(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute("UPDATE meta SET value = value + 1 WHERE key = 'ring_version'", [])?;
    Ok(())
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
