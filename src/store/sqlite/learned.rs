//! DNS facts in SQLite: a table that is created with its first row.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::columns::{to_i64_saturating, to_u64_or_zero};
use super::connection::Sqlite;
use super::meta::{read_meta_value, write_meta_value};
use crate::store::error::StoreError;
use crate::store::operations::DnsFactBackend;
use crate::store::rows::{DNS_FACTS_PER_PAGE, DnsFactRow, EXPIRED_ROWS_PER_PAGE, MAX_DNS_FACTS};

const READ_OPERATION: &str = "reading DNS facts";
/// The row of `meta` with a version that no deleted fact exceeds. A version is never used again,
/// because nodes read only the facts of later versions.
const NEWEST_DELETED_VERSION: &str = "newest_deleted_dns_fact_version";

const DNS_FACTS_SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS learned (
    name TEXT PRIMARY KEY, mx TEXT NOT NULL, until INTEGER NOT NULL, version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS learned_version ON learned (version);
";

impl DnsFactBackend for Sqlite {
    fn save_dns_facts(&mut self, facts: &[DnsFactRow]) -> Result<(), StoreError> {
        const OPERATION: &str = "saving DNS facts";
        // The ledger waits for the lock, so each transaction writes only one page.
        for page in facts.chunks(DNS_FACTS_PER_PAGE) {
            self.write(OPERATION, |transaction| Ok(write_dns_facts(transaction, page)?))?;
        }
        let count: i64 = self.read(OPERATION, |connection| {
            connection.query_row("SELECT count(*) FROM learned", [], |row| row.get(0))
        })?;
        let mut surplus = usize::try_from(count).unwrap_or(0).saturating_sub(MAX_DNS_FACTS);
        while surplus > 0 {
            let count = surplus.min(DNS_FACTS_PER_PAGE);
            let oldest = "DELETE FROM learned WHERE name IN
                          (SELECT name FROM learned ORDER BY version LIMIT ?1)";
            self.write(OPERATION, |transaction| {
                let count = to_i64_saturating(count as u64);
                Ok(transaction.prepare_cached(oldest)?.execute([count])?)
            })?;
            surplus -= count;
        }
        Ok(())
    }

    fn read_dns_facts_page(
        &mut self,
        after_version: u64,
    ) -> Result<(Vec<DnsFactRow>, u64), StoreError> {
        self.read(READ_OPERATION, |connection| read_dns_facts(connection, after_version))
    }

    fn find_dns_fact(&mut self, name: &str) -> Result<Option<DnsFactRow>, StoreError> {
        self.read(READ_OPERATION, |connection| {
            if !dns_facts_table_exists(connection)? {
                return Ok(None);
            }
            let select = "SELECT name, mx, until FROM learned WHERE name = ?1";
            connection.prepare_cached(select)?.query_row([name], parse_dns_fact).optional()
        })
    }
}

impl Sqlite {
    /// Deletes a page of the facts whose expiry is `latest_expiry` or earlier. Returns false once
    /// there is none.
    pub(super) fn delete_page_of_dns_facts(
        &mut self,
        latest_expiry: i64,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "deleting DNS facts";
        // Finding the facts takes longer than deleting them, and needs no lock.
        let names =
            self.read(OPERATION, |connection| find_expired_dns_facts(connection, latest_expiry))?;
        if names.is_empty() {
            return Ok(false);
        }
        self.write(OPERATION, |transaction| {
            let newest = to_i64_saturating(read_newest_dns_fact_version(transaction)?);
            write_meta_value(transaction, NEWEST_DELETED_VERSION, newest)?;
            // A fact may have been replaced since it was found.
            let delete = "DELETE FROM learned WHERE name = ?1 AND until <= ?2";
            let mut delete = transaction.prepare_cached(delete)?;
            for name in &names {
                delete.execute(params![name, latest_expiry])?;
            }
            Ok(true)
        })
    }
}

fn find_expired_dns_facts(
    connection: &Connection,
    latest_expiry: i64,
) -> rusqlite::Result<Vec<String>> {
    if !dns_facts_table_exists(connection)? {
        return Ok(Vec::new());
    }
    // Another program may have written a name that is no text. Such a row stays.
    let select = "SELECT name FROM learned WHERE until <= ?1 AND typeof(name) = 'text' LIMIT ?2";
    let mut select = connection.prepare_cached(select)?;
    let arguments = [latest_expiry, to_i64_saturating(EXPIRED_ROWS_PER_PAGE as u64)];
    select.query_map(arguments, |row| row.get(0))?.collect()
}

fn write_dns_facts(transaction: &Transaction<'_>, facts: &[DnsFactRow]) -> rusqlite::Result<()> {
    transaction.execute_batch(DNS_FACTS_SCHEMA)?;
    let mut version = read_newest_dns_fact_version(transaction)?;
    let mut insert =
        transaction.prepare_cached("INSERT OR REPLACE INTO learned VALUES (?1, ?2, ?3, ?4)")?;
    for row in facts {
        version += 1;
        let (host_text, version) = (row.format_host_text(), to_i64_saturating(version));
        insert.execute(params![row.name, host_text, row.expires_at, version])?;
    }
    Ok(())
}

fn read_dns_facts(
    connection: &Connection,
    after_version: u64,
) -> rusqlite::Result<(Vec<DnsFactRow>, u64)> {
    let newest = if dns_facts_table_exists(connection)? {
        read_newest_dns_fact_version(connection)?
    } else {
        0
    };
    // If the caller knows a newer version, the file was replaced or restored from a backup.
    let mut version = if after_version > newest { 0 } else { after_version };
    if version == newest {
        return Ok((Vec::new(), version));
    }
    let mut statement = connection.prepare_cached(
        "SELECT name, mx, until, version FROM learned
         WHERE version > ?1 AND typeof(version) = 'integer' ORDER BY version LIMIT ?2",
    )?;
    let mut found = statement
        .query(params![to_i64_saturating(version), to_i64_saturating(DNS_FACTS_PER_PAGE as u64)])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        version = to_u64_or_zero(row.get(3)?);
        // A fact that can't be read is skipped, and riskgate queries the DNS again.
        rows.extend(parse_dns_fact(row).ok());
    }
    if rows.is_empty() {
        // The facts of the later versions were deleted, or can't be read.
        version = version.max(newest);
    }
    Ok((rows, version))
}

fn dns_facts_table_exists(connection: &Connection) -> rusqlite::Result<bool> {
    let select = "SELECT 1 FROM sqlite_schema WHERE name = 'learned'";
    connection.prepare_cached(select)?.exists([])
}

fn parse_dns_fact(row: &Row<'_>) -> rusqlite::Result<DnsFactRow> {
    let host_text: String = row.get(1)?;
    Ok(DnsFactRow::from_host_text(row.get(0)?, &host_text, row.get(2)?))
}

/// The newest version that a fact has or had.
fn read_newest_dns_fact_version(connection: &Connection) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "SELECT version FROM learned WHERE typeof(version) = 'integer'
         ORDER BY version DESC LIMIT 1",
    )?;
    let newest = statement.query_row([], |row| row.get(0)).optional()?;
    let deleted: Option<i64> = read_meta_value(connection, NEWEST_DELETED_VERSION)?;
    Ok(newest.max(deleted).map_or(0, to_u64_or_zero))
}
