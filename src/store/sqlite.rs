//! The embedded store: one SQLite file in WAL mode, `synchronous=FULL`.
//!
//! Owns the schema and every statement. Several processes may have the file open at once: a
//! gateway and its successor during a hand-over, and the command line beside them. What a verb
//! has returned is on disk. It never replaces or empties a file that it does not understand.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{
    AccountRow, KeyRow, LimitRow, RingRows, Standing, Statement, StoreError, TopRow, UsageRow,
};
use crate::month::Month;

const APPLICATION_ID: i64 = 0x7267_6174; // "rgat"
const SCHEMA_VERSION: i64 = 1;
const SCHEMA: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE account (
    name TEXT PRIMARY KEY, plan TEXT, calls INTEGER, unlimited INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE api_key (
    id TEXT PRIMARY KEY, account TEXT NOT NULL, label TEXT, digest BLOB NOT NULL UNIQUE,
    origins TEXT NOT NULL, require_origin INTEGER NOT NULL, created_at INTEGER NOT NULL,
    expires_at INTEGER, revoked_at INTEGER
) WITHOUT ROWID;
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

/// An open store. One connection: give each thread its own.
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
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
        let failed = |source| explain(path, source);
        let connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(busy.max(Duration::from_millis(1))).map_err(failed)?;
        let mut store = Sqlite { connection, path: path.to_owned() };
        store.prepare_file()?;
        Ok(store)
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

    fn prepare_file(&mut self) -> Result<(), StoreError> {
        let path = self.path.clone();
        let failed = |source| explain(&path, source);
        let pragma = |connection: &Connection, name: &str| {
            connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0))
        };
        self.check_version(pragma(&self.connection, "application_id").map_err(failed)?)?;
        self.connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        self.connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        // Two processes may create at once: who comes second finds it done.
        if pragma(&transaction, "user_version").map_err(failed)? == 0 {
            create_schema(&transaction).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn check_version(&self, application_id: i64) -> Result<(), StoreError> {
        let failed = |source| explain(&self.path, source);
        let version: i64 = self
            .connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(failed)?;
        let tables: i64 = self
            .connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(failed)?;
        let unusable = |expected, found| {
            Err(StoreError::Unusable { path: self.path.display().to_string(), expected, found })
        };
        if tables > 0 && application_id != APPLICATION_ID {
            return unusable("a riskgate store", "another program's database".to_owned());
        }
        if version > SCHEMA_VERSION {
            return unusable(
                "a store of version 1",
                format!("version {version}, made by a newer riskgate; run that one"),
            );
        }
        Ok(())
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

fn explain(path: &Path, source: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match source.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => StoreError::Unusable {
            path: path.display().to_string(),
            expected: "an intact store",
            found: format!("{source}; restore a backup, or move the file away to start afresh"),
        },
        _ => StoreError::Failed {
            path: path.display().to_string(),
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

fn insert_key(
    transaction: &Transaction<'_>,
    key: &KeyRow,
    plan: Option<&str>,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO account (name, plan) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET plan = coalesce(excluded.plan, plan)",
        params![key.account, plan],
    )?;
    let origins = serde_json::to_string(&key.origins).unwrap_or_else(|_| "[]".to_owned());
    transaction.execute(
        "INSERT INTO api_key VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            key.id,
            key.account,
            key.label,
            key.digest.as_slice(),
            origins,
            key.require_origin,
            key.created_at,
            key.expires_at,
            key.revoked_at
        ],
    )?;
    Ok(())
}

fn read_accounts(connection: &Connection) -> rusqlite::Result<Vec<AccountRow>> {
    let mut statement =
        connection.prepare("SELECT name, plan, calls, unlimited FROM account ORDER BY name")?;
    let rows = statement.query_map([], |row| {
        let calls: Option<i64> = row.get(2)?;
        let limit = if row.get::<_, bool>(3)? {
            Some(LimitRow::Unlimited)
        } else {
            calls.map(|calls| LimitRow::Calls(unsigned(calls)))
        };
        Ok(AccountRow { name: row.get(0)?, plan: row.get(1)?, limit })
    })?;
    rows.collect()
}

fn read_keys(connection: &Connection) -> rusqlite::Result<Vec<KeyRow>> {
    let mut statement = connection.prepare(
        "SELECT id, account, label, digest, origins, require_origin, created_at, expires_at,
         revoked_at FROM api_key ORDER BY created_at, id",
    )?;
    let rows = statement.query_map([], |row| {
        let origins: String = row.get(4)?;
        let origins = serde_json::from_str(&origins).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                4,
                rusqlite::types::Type::Text,
                Box::new(error),
            )
        })?;
        Ok(KeyRow {
            id: row.get(0)?,
            account: row.get(1)?,
            label: row.get(2)?,
            digest: row.get(3)?,
            origins,
            require_origin: row.get(5)?,
            created_at: row.get(6)?,
            expires_at: row.get(7)?,
            revoked_at: row.get(8)?,
        })
    })?;
    rows.collect()
}

fn read_top(connection: &Connection, day: i64) -> rusqlite::Result<(Vec<TopRow>, Vec<u64>)> {
    let mut counts = connection.prepare("SELECT domain, count, at, accounts FROM top_count")?;
    let rows = counts
        .query_map([], |row| {
            let accounts: Vec<u8> = row.get(3)?;
            Ok(TopRow {
                domain: row.get(0)?,
                count: row.get(1)?,
                at: row.get(2)?,
                accounts: accounts
                    .chunks_exact(8)
                    .filter_map(|chunk| chunk.try_into().ok().map(u64::from_le_bytes))
                    .collect(),
            })
        })?
        .collect::<Result<_, _>>()?;
    let mut seen = connection.prepare("SELECT mark FROM top_seen WHERE day = ?1")?;
    let marks = seen
        .query_map([day], |row| row.get::<_, i64>(0).map(i64::cast_unsigned))?
        .collect::<Result<_, _>>()?;
    Ok((rows, marks))
}

fn write_top(
    transaction: &Transaction<'_>,
    rows: &[TopRow],
    gone: &[String],
    day: i64,
    marks: &[u64],
) -> rusqlite::Result<()> {
    let mut replace =
        transaction.prepare_cached("INSERT OR REPLACE INTO top_count VALUES (?1, ?2, ?3, ?4)")?;
    for row in rows {
        let accounts: Vec<u8> = row.accounts.iter().flat_map(|mark| mark.to_le_bytes()).collect();
        replace.execute(params![row.domain, row.count, row.at, accounts])?;
    }
    let mut forget = transaction.prepare_cached("DELETE FROM top_count WHERE domain = ?1")?;
    for domain in gone {
        forget.execute([domain])?;
    }
    let mut mark_seen =
        transaction.prepare_cached("INSERT OR IGNORE INTO top_seen VALUES (?1, ?2)")?;
    for mark in marks {
        mark_seen.execute(params![day, mark.cast_signed()])?;
    }
    transaction.prepare_cached("DELETE FROM top_seen WHERE day < ?1")?.execute([day])?;
    Ok(())
}

/// Counts stay far below 2^63; a limit above it reads back as that.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
