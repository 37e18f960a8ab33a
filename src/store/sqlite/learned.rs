//! What the DNS said, in the embedded store: a table that is made with its first row.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::connection::Sqlite;
use super::rows::{signed, unsigned};
use crate::store::error::StoreError;
use crate::store::rows::{LEARNED_AT_ONCE, LearnedRow, MOST_LEARNED};

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS learned (
    name TEXT PRIMARY KEY, mx TEXT NOT NULL, until INTEGER NOT NULL, version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS learned_version ON learned (version);
";

impl Sqlite {
    pub(in super::super) fn learn(&mut self, rows: &[LearnedRow]) -> Result<(), StoreError> {
        const DOING: &str = "saving what the DNS said";
        let failed = self.failed(DOING);
        // The ledger waits for the lock: it is held for a part at a time.
        for some in rows.chunks(LEARNED_AT_ONCE) {
            let transaction = self.begin(DOING)?;
            write(&transaction, some).map_err(&failed)?;
            transaction.commit().map_err(&failed)?;
        }
        let count = "SELECT count(*) FROM learned";
        let count: i64 = self.connection.query_row(count, [], |row| row.get(0)).map_err(&failed)?;
        let mut surplus = usize::try_from(count).unwrap_or(0).saturating_sub(MOST_LEARNED);
        while surplus > 0 {
            let some = surplus.min(LEARNED_AT_ONCE);
            let transaction = self.begin(DOING)?;
            drop_oldest(&transaction, some).map_err(&failed)?;
            transaction.commit().map_err(&failed)?;
            surplus -= some;
        }
        Ok(())
    }

    pub(in super::super) fn learned_since(
        &mut self,
        since: u64,
    ) -> Result<(Vec<LearnedRow>, u64), StoreError> {
        read(&self.connection, since).map_err(self.failed("reading what the DNS said"))
    }

    pub(in super::super) fn learned_of(
        &mut self,
        name: &str,
    ) -> Result<Option<LearnedRow>, StoreError> {
        let read = |connection: &Connection| {
            if !is_there(connection)? {
                return Ok(None);
            }
            let of = "SELECT name, mx, until FROM learned WHERE name = ?1";
            connection.prepare_cached(of)?.query_row([name], learned).optional()
        };
        read(&self.connection).map_err(self.failed("reading what the DNS said"))
    }
}

fn write(transaction: &Transaction<'_>, rows: &[LearnedRow]) -> rusqlite::Result<()> {
    transaction.execute_batch(TABLE)?;
    let mut version = newest(transaction)?;
    let mut put =
        transaction.prepare_cached("INSERT OR REPLACE INTO learned VALUES (?1, ?2, ?3, ?4)")?;
    for row in rows {
        version += 1;
        put.execute(params![row.name, row.mx, row.until, signed(version)])?;
    }
    Ok(())
}

fn drop_oldest(transaction: &Transaction<'_>, count: usize) -> rusqlite::Result<()> {
    let oldest = "DELETE FROM learned WHERE name IN
                  (SELECT name FROM learned ORDER BY version LIMIT ?1)";
    transaction.prepare_cached(oldest)?.execute([signed(count as u64)])?;
    Ok(())
}

fn read(connection: &Connection, since: u64) -> rusqlite::Result<(Vec<LearnedRow>, u64)> {
    let newest = if is_there(connection)? { newest(connection)? } else { 0 };
    // Older than what is known: it is another file, or an earlier state of it.
    let mut version = if since > newest { 0 } else { since };
    if version == newest {
        return Ok((Vec::new(), version));
    }
    let mut statement = connection.prepare_cached(
        "SELECT name, mx, until, version FROM learned WHERE version > ?1 ORDER BY version LIMIT ?2",
    )?;
    let mut found = statement.query(params![signed(version), signed(LEARNED_AT_ONCE as u64)])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        version = unsigned(row.get(3)?);
        // One that can't be read is learned anew.
        rows.extend(learned(row).ok());
    }
    Ok((rows, version))
}

fn is_there(connection: &Connection) -> rusqlite::Result<bool> {
    let known = "SELECT 1 FROM sqlite_schema WHERE name = 'learned'";
    connection.prepare_cached(known)?.exists([])
}

fn learned(row: &Row<'_>) -> rusqlite::Result<LearnedRow> {
    Ok(LearnedRow { name: row.get(0)?, mx: row.get(1)?, until: row.get(2)? })
}

fn newest(connection: &Connection) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT max(version) FROM learned")?;
    let newest: Option<Option<i64>> = statement.query_row([], |row| row.get(0)).optional()?;
    Ok(newest.flatten().map_or(0, unsigned))
}
