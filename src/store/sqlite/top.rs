//! Top counts in SQLite.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::columns::{fail_if_unreadable, parse_rows};
use super::connection::Sqlite;
use crate::store::error::StoreError;
use crate::store::operations::TopListBackend;
use crate::store::rows::{TopCredit, TopRow};

const READ_OPERATION: &str = "reading the top counts";
const INSERT_ROW: &str = "INSERT OR REPLACE INTO top_count VALUES (?1, ?2, ?3, ?4)";

impl TopListBackend for Sqlite {
    fn top_rows(&mut self) -> Result<Vec<TopRow>, StoreError> {
        Ok(self.read(READ_OPERATION, read_top_rows)?.0)
    }

    fn top_rows_to_copy(&mut self) -> Result<Vec<TopRow>, StoreError> {
        let (rows, damaged) = self.read(READ_OPERATION, read_top_rows)?;
        fail_if_unreadable(damaged, |domain| format!("the top count {domain:?}")).map(|()| rows)
    }

    fn top_rows_and_dedup_hashes(
        &mut self,
        unix_day: i64,
    ) -> Result<(Vec<TopRow>, Vec<u64>), StoreError> {
        let dedup_hashes =
            self.read(READ_OPERATION, |connection| read_dedup_hashes(connection, unix_day))?;
        Ok((self.top_rows()?, dedup_hashes))
    }

    fn add_credits(
        &mut self,
        credits: &[TopCredit],
        evicted_domains: &[String],
        unix_day: i64,
        half_life_seconds: f64,
    ) -> Result<Vec<TopRow>, StoreError> {
        self.write("saving the top counts", |transaction| {
            let mut delete_row =
                transaction.prepare_cached("DELETE FROM top_count WHERE domain = ?1")?;
            for domain in evicted_domains {
                delete_row.execute([domain])?;
            }
            let mut insert_hash =
                transaction.prepare_cached("INSERT OR IGNORE INTO top_seen VALUES (?1, ?2)")?;
            let mut read = transaction.prepare_cached(
                "SELECT domain, count, at, accounts FROM top_count WHERE domain = ?1",
            )?;
            let mut write = transaction.prepare_cached(INSERT_ROW)?;
            let mut rows = Vec::with_capacity(credits.len());
            for credit in credits {
                let mut accounts = Vec::with_capacity(credit.dedup_hashes.len());
                for (dedup_hash, account) in &credit.dedup_hashes {
                    if insert_hash.execute(params![unix_day, dedup_hash.cast_signed()])? == 1 {
                        accounts.push(*account);
                    }
                }
                // A row that can't be read counts for nothing, and is replaced.
                let known = read.query_row([&credit.domain], |row| Ok(parse_top_row(row).ok()));
                let row = TopRow::add_lookups(
                    known.optional()?.flatten(),
                    credit,
                    &accounts,
                    half_life_seconds,
                );
                let accounts = encode_account_hashes(&row.account_hashes);
                write.execute(params![row.domain, row.count, row.at, accounts])?;
                rows.push(row);
            }
            Ok(rows)
        })
    }
}

/// Reads the rows of the top list, and the domains of the rows that can't be read.
fn read_top_rows(connection: &Connection) -> rusqlite::Result<(Vec<TopRow>, Vec<String>)> {
    let mut counts = connection.prepare("SELECT domain, count, at, accounts FROM top_count")?;
    parse_rows(counts.query([])?, parse_top_row)
}

fn parse_top_row(row: &Row<'_>) -> rusqlite::Result<TopRow> {
    Ok(TopRow {
        domain: row.get(0)?,
        count: row.get(1)?,
        at: row.get(2)?,
        account_hashes: decode_account_hashes(&row.get::<_, Vec<u8>>(3)?),
    })
}

/// Reads the hashes of a day. Leaves out a value that is no hash.
fn read_dedup_hashes(connection: &Connection, unix_day: i64) -> rusqlite::Result<Vec<u64>> {
    let mut statement = connection.prepare("SELECT mark FROM top_seen WHERE day = ?1")?;
    let parse = |row: &Row<'_>| Ok(row.get(0).ok().map(i64::cast_unsigned));
    let dedup_hashes = statement.query_map([unix_day], parse)?;
    dedup_hashes.filter_map(Result::transpose).collect()
}

/// Writes the top list of another store into an empty store.
pub(super) fn fill_top_rows(
    transaction: &Transaction<'_>,
    rows: &[TopRow],
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(INSERT_ROW)?;
    for row in rows {
        let accounts = encode_account_hashes(&row.account_hashes);
        insert.execute(params![row.domain, row.count, row.at, accounts])?;
    }
    Ok(())
}

fn encode_account_hashes(hashes: &[u64]) -> Vec<u8> {
    hashes.iter().flat_map(|account| account.to_le_bytes()).collect()
}

fn decode_account_hashes(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
}

#[cfg(test)]
mod tests;
