//! Sign-ups in SQLite, and deletions of sign-ups: one table, which is created with its first row.

use std::collections::HashSet;

use rusqlite::{Connection, Transaction, params};

use super::audit::append_record;
use super::columns::{to_i64_saturating, to_u64_or_zero};
use super::connection::Sqlite;
use crate::model::believed_time::BelievedTime;
use crate::model::sign_up::{Pseudonym, SignUp, times_of_kept_sign_ups};
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::operations::ConnectionBackend as _;
use crate::store::operations::SignUpBackend;
use crate::store::sign_ups::{
    MAX_ENTRIES_DELETED_PER_STEP, MAX_SIGN_UPS, NumberedEntry, OLDEST_SIGN_UPS_PER_WRITE,
    SIGN_UP_BYTES, SIGN_UPS_PER_WRITE, SignUpCursor, SignUpDeletion, change_of_deleted_sign_ups,
    encode_deletion, encode_sign_up, leave_out_deleted,
};

/// With AUTOINCREMENT, a number is never used again.
const SIGN_UP_SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS sign_up (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, pseudonyms BLOB NOT NULL
);
";

impl SignUpBackend for Sqlite {
    fn append_sign_ups(
        &mut self,
        sign_ups: &[SignUp],
        mut read_up_to: SignUpCursor,
    ) -> Result<SignUpCursor, StoreError> {
        const OPERATION: &str = "saving sign-ups";
        let now = self.told_time.now();
        if sign_ups.is_empty() && now.allows_deletion() {
            self.write(OPERATION, |transaction| match sign_up_table_exists(transaction)? {
                true => Ok(delete_old_sign_ups(transaction, now, OLDEST_SIGN_UPS_PER_WRITE)?),
                false => Ok(()),
            })?;
        }
        // The ledger waits for the lock, so each transaction writes only one page.
        for page in sign_ups.chunks(SIGN_UPS_PER_WRITE) {
            read_up_to = self.write(OPERATION, |transaction| {
                let not_read = read_entries_from(transaction, read_up_to.number + 1, usize::MAX)?;
                let page = leave_out_deleted(page, &not_read);
                write_sign_ups(transaction, &page)?;
                let max_deleted = page.len() + OLDEST_SIGN_UPS_PER_WRITE;
                delete_old_sign_ups(transaction, now, max_deleted)?;
                let last_number = to_u64_or_zero(transaction.last_insert_rowid());
                let last_number = not_read.is_empty().then_some(last_number);
                Ok(read_up_to.after_appended(&page, last_number))
            })?;
        }
        Ok(read_up_to)
    }

    fn read_sign_up_entries(
        &mut self,
        from: u64,
        count: usize,
    ) -> Result<Vec<NumberedEntry>, StoreError> {
        self.read("reading sign-ups", |connection| read_entries_from(connection, from, count))
    }

    fn delete_sign_ups(
        &mut self,
        author: &ChangeAuthor,
        deletion: &SignUpDeletion<'_>,
    ) -> Result<usize, StoreError> {
        const OPERATION: &str = "deleting sign-ups";
        let now = self.told_time.now();
        let mut found = deletion.found.clone();
        let deleted: HashSet<Pseudonym> = deletion.inboxes.iter().copied().collect();
        self.write(OPERATION, |transaction| {
            let written_since = read_entries_from(transaction, found.read_up_to + 1, usize::MAX)?;
            found.add_page(&written_since, &deleted);
            let (_, last) = found.split_numbers_to_delete();
            delete_entries_by_number(transaction, last)?;
            let deletions = deletion.inboxes.iter().map(|it| (now.unix_now, encode_deletion(*it)));
            append_entries(transaction, deletions)?;
            let change = change_of_deleted_sign_ups(found.count);
            Ok(append_record(transaction, now, author, &change)?)
        })?;
        let (earlier, _) = found.split_numbers_to_delete();
        for numbers in earlier.chunks(MAX_ENTRIES_DELETED_PER_STEP) {
            self.write(OPERATION, |transaction| {
                Ok(delete_entries_by_number(transaction, numbers)?)
            })?;
        }
        // SQLite overwrites the rows in the file, but its write-ahead log still has them. If
        // another process reads the store at this moment, a gateway empties the log later.
        let _ = self.checkpoint_wal();
        Ok(found.count)
    }
}

pub(super) fn write_sign_ups(
    transaction: &Transaction<'_>,
    sign_ups: &[SignUp],
) -> rusqlite::Result<()> {
    let entries = sign_ups.iter().map(|sign_up| (sign_up.at, encode_sign_up(sign_up)));
    if sign_ups.is_empty() { Ok(()) } else { append_entries(transaction, entries) }
}

fn append_entries(
    transaction: &Transaction<'_>,
    entries: impl Iterator<Item = (i64, [u8; SIGN_UP_BYTES])>,
) -> rusqlite::Result<()> {
    /// Each statement reads and writes the number of AUTOINCREMENT, so one with many rows is
    /// cheaper.
    const ROWS_PER_STATEMENT: usize = 50;
    transaction.execute_batch(SIGN_UP_SCHEMA)?;
    let entries: Vec<_> = entries.collect();
    let (full, rest) = entries.as_chunks::<ROWS_PER_STATEMENT>();
    full.iter().try_for_each(|rows| insert_rows(transaction, rows))?;
    rest.iter().try_for_each(|row| insert_rows(transaction, std::slice::from_ref(row)))
}

fn insert_rows(
    transaction: &Transaction<'_>,
    rows: &[(i64, [u8; SIGN_UP_BYTES])],
) -> rusqlite::Result<()> {
    let places = vec!["(?, ?)"; rows.len()].join(", ");
    let insert = format!("INSERT INTO sign_up (at, pseudonyms) VALUES {places}");
    let mut insert = transaction.prepare_cached(&insert)?;
    for (row, (at, bytes)) in rows.iter().enumerate() {
        insert.raw_bind_parameter(2 * row + 1, at)?;
        insert.raw_bind_parameter(2 * row + 2, bytes)?;
    }
    insert.raw_execute().map(drop)
}

fn delete_entries_by_number(
    transaction: &Transaction<'_>,
    numbers: &[u64],
) -> rusqlite::Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let mut delete = transaction.prepare_cached("DELETE FROM sign_up WHERE number = ?1")?;
    numbers.iter().try_for_each(|number| delete.execute([to_i64_saturating(*number)]).map(drop))
}

/// Looks at the `max_deleted` oldest entries. Deletes those that exceed [`MAX_SIGN_UPS`] and, if
/// the time is settled, those that are too old or were written while a clock was ahead. The entry
/// that was written last stays.
fn delete_old_sign_ups(
    transaction: &Transaction<'_>,
    now: BelievedTime,
    max_deleted: usize,
) -> rusqlite::Result<()> {
    let kept_times = match now.allows_deletion() {
        true => times_of_kept_sign_ups(now.unix_now),
        false => i64::MIN..=i64::MAX,
    };
    let delete = "DELETE FROM sign_up
        WHERE number < coalesce(
            (SELECT number FROM sign_up ORDER BY number LIMIT 1 OFFSET ?1),
            (SELECT max(number) FROM sign_up)
        ) AND (at NOT BETWEEN ?2 AND ?3 OR number <= (SELECT max(number) FROM sign_up) - ?4)";
    let (max_deleted, max_kept) = (max_deleted as u64, MAX_SIGN_UPS as u64);
    let arguments = params![
        to_i64_saturating(max_deleted),
        kept_times.start(),
        kept_times.end(),
        to_i64_saturating(max_kept)
    ];
    transaction.prepare_cached(delete)?.execute(arguments)?;
    Ok(())
}

fn read_entries_from(
    connection: &Connection,
    from: u64,
    count: usize,
) -> rusqlite::Result<Vec<NumberedEntry>> {
    if !sign_up_table_exists(connection)? {
        return Ok(Vec::new());
    }
    let select = "SELECT number, at, pseudonyms FROM sign_up WHERE number >= ?1
                  ORDER BY number LIMIT ?2";
    let mut select = connection.prepare_cached(select)?;
    let arguments = params![to_i64_saturating(from), to_i64_saturating(count as u64)];
    let rows = select.query_map(arguments, |row| {
        let number = to_u64_or_zero(row.get(0)?);
        let columns = row.get(1).and_then(|at| Ok((at, row.get::<_, Vec<u8>>(2)?)));
        Ok(match columns {
            Ok((at, bytes)) => NumberedEntry::new(number, at, &bytes),
            Err(_) => NumberedEntry { number, entry: None },
        })
    })?;
    rows.collect()
}

pub(super) fn has_sign_ups(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(sign_up_table_exists(connection)?
        && connection.prepare_cached("SELECT 1 FROM sign_up")?.exists([])?)
}

fn sign_up_table_exists(connection: &Connection) -> rusqlite::Result<bool> {
    let select = "SELECT 1 FROM sqlite_schema WHERE name = 'sign_up'";
    connection.prepare_cached(select)?.exists([])
}

#[cfg(test)]
mod tests;
