//! The audit in SQLite, the states of sources, and requests that can be repeated.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde_json::Value;

use super::columns::{column_text, fail_if_unreadable, parse_rows};
use super::connection::{Sqlite, WriteError};
use crate::model::believed_time::BelievedTime;
use crate::store::audit::{
    AUDIT_RETENTION_SECONDS, AuditOperation, AuditRecord, Change, ChangeAuthor, SourceState,
    diff_source_states,
};
use crate::store::contents::StoreContents;
use crate::store::error::{self, StoreError};
use crate::store::operations::AuditBackend;
use crate::store::rows::{RepeatableRequestRow, latest_forgotten_request_time};

/// The most old records that one new record deletes, so that no change takes long.
const MAX_DELETED_RECORDS: i64 = 16;
const READ_OPERATION: &str = "reading the audit";

impl AuditBackend for Sqlite {
    fn record_source_state(
        &mut self,
        author: &ChangeAuthor,
        operation: AuditOperation,
        state: &SourceState,
    ) -> Result<bool, StoreError> {
        let now = self.told_time.now();
        self.write("recording a change", |transaction| {
            let text = state.to_stored_text();
            let stored = select_source_state(transaction, &state.subject)?;
            let shared = select_source_state(transaction, &state.shared_subject)?;
            if stored.as_ref() == Some(&text) && shared.is_some() {
                return Ok(false);
            }
            set_source_state(transaction, &state.subject, &text)?;
            set_source_state(transaction, &state.shared_subject, &text)?;
            let Some(before) = stored.or(shared).filter(|before| *before != text) else {
                return Ok(false);
            };
            let (before, after) = diff_source_states(&before, &text);
            let target = state.subject.clone();
            append_record(transaction, now, author, &Change { operation, target, before, after })?;
            Ok(true)
        })
    }

    fn read_audit_before(
        &mut self,
        before_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let before = before_id.and_then(AuditRecord::parse_id).map_or(i64::MAX, to_row_id);
        self.read_records("id < ?1 ORDER BY id DESC", before, count)
    }

    fn read_audit_after(
        &mut self,
        after_id: Option<&str>,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let after = after_id.and_then(AuditRecord::parse_id).map_or(0, to_row_id);
        self.read_records("id > ?1 ORDER BY id", after, count)
    }

    fn read_source_state(&mut self, subject: &str) -> Result<Option<String>, StoreError> {
        self.read(READ_OPERATION, |connection| select_source_state(connection, subject))
    }

    fn find_audit_record(&mut self, id: &str) -> Result<Option<AuditRecord>, StoreError> {
        let Some(id) = AuditRecord::parse_id(id).map(to_row_id) else { return Ok(None) };
        Ok(self.read_records("id = ?1", id, 1)?.pop())
    }

    fn find_repeatable_request(
        &mut self,
        id: &str,
    ) -> Result<Option<RepeatableRequestRow>, StoreError> {
        let forgotten_at = latest_forgotten_request_time(self.told_time.now().unix_now);
        let select = "SELECT digest, salt, key_id FROM request WHERE id = ?1 AND at > ?2";
        let parse = |row: &Row<'_>| {
            let (digest, salt, key_id) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(RepeatableRequestRow { id: id.to_owned(), digest, salt, key_id })
        };
        self.read("looking for a request", |connection| {
            connection.query_row(select, params![id, forgotten_at], parse).optional()
        })
    }
}

impl Sqlite {
    /// The subject and the state of each source.
    pub(in crate::store) fn read_source_states(
        &mut self,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let (states, damaged) = self.read(READ_OPERATION, |connection| {
            let mut select = connection.prepare("SELECT subject, entries FROM source_state")?;
            parse_rows(select.query([])?, |row| Ok((row.get(0)?, row.get(1)?)))
        })?;
        let unreadable = |subject| format!("the state of the source {subject}");
        fail_if_unreadable(damaged, unreadable).map(|()| states)
    }

    /// Reads up to `count` records that a condition on the id `id` selects.
    fn read_records(
        &self,
        condition: &str,
        id: i64,
        count: usize,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let select = format!(
            "SELECT id, at, author, operation, target, before, after FROM audit
             WHERE {condition} LIMIT ?2"
        );
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.read(READ_OPERATION, |connection| {
            let mut statement = connection.prepare_cached(&select)?;
            statement.query_map([id, count], parse_record)?.collect()
        })
    }
}

/// Selects the state of a source. A state that riskgate did not write differs from each that it
/// writes, so the next state replaces it.
pub(super) fn select_source_state(
    connection: &Connection,
    subject: &str,
) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT entries FROM source_state WHERE subject = ?1")?
        .query_row([subject], |row| Ok(column_text(row, 0)))
        .optional()
}

pub(super) fn set_source_state(
    transaction: &Transaction<'_>,
    subject: &str,
    text: &str,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO source_state VALUES (?1, ?2)")?
        .execute([subject, text])?;
    Ok(())
}

fn to_row_id((id, _): (u64, u64)) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

fn parse_record(row: &Row<'_>) -> rusqlite::Result<AuditRecord> {
    // A value that riskgate did not write becomes null, so that the other records can be read.
    let json = |column| serde_json::from_str(&column_text(row, column)).unwrap_or(Value::Null);
    let author = ChangeAuthor::from_json(&json(2));
    Ok(AuditRecord {
        id: row.get::<_, i64>(0)?.to_string(),
        at: row.get(1).unwrap_or_default(),
        author: author.unwrap_or_else(|| ChangeAuthor::riskgate("unknown")),
        operation: column_text(row, 3),
        target: column_text(row, 4),
        before: json(5),
        after: json(6),
    })
}

/// Appends a record if something changed. If the time is settled, also deletes up to
/// [`MAX_DELETED_RECORDS`] records that are older than [`AUDIT_RETENTION_SECONDS`].
pub(super) fn append_record(
    transaction: &Transaction<'_>,
    now: BelievedTime,
    author: &ChangeAuthor,
    change: &Change,
) -> rusqlite::Result<()> {
    let Change { operation, target, before, after } = change;
    if before == after {
        return Ok(());
    }
    // A lower bound may be older than the latest record.
    let at = match now.is_known() {
        true => now.unix_now,
        false => now.unix_now.max(latest_record_time(transaction)?),
    };
    let texts = [operation.as_str(), target, &before.to_string(), &after.to_string()];
    insert_record(transaction, at, author, texts)?;
    if now.allows_deletion() {
        transaction
            .prepare_cached(
                "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < ?1
                 ORDER BY at LIMIT ?2)",
            )?
            .execute([now.unix_now.saturating_sub(AUDIT_RETENTION_SECONDS), MAX_DELETED_RECORDS])?;
    }
    Ok(())
}

/// Writes the records of another store into an empty store, and the states of sources. The records
/// get new ids, in the same order.
pub(super) fn fill_audit(
    transaction: &Transaction<'_>,
    contents: &StoreContents,
) -> rusqlite::Result<()> {
    for AuditRecord { at, author, operation, target, before, after, .. } in &contents.audit {
        let texts = [operation, target, &before.to_string(), &after.to_string()];
        insert_record(transaction, *at, author, texts.map(String::as_str))?;
    }
    for (subject, state) in &contents.source_states {
        set_source_state(transaction, subject, state)?;
    }
    Ok(())
}

/// Inserts a record. `texts` are its operation, its target, and the states before and after.
fn insert_record(
    transaction: &Transaction<'_>,
    at: i64,
    author: &ChangeAuthor,
    [operation, target, before, after]: [&str; 4],
) -> rusqlite::Result<()> {
    let author = author.to_json().to_string();
    transaction
        .prepare_cached(
            "INSERT INTO audit (at, author, operation, target, before, after)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![at, author, operation, target, before, after])?;
    Ok(())
}

fn latest_record_time(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    let select = "SELECT coalesce((SELECT at FROM audit ORDER BY id DESC LIMIT 1), 0)";
    transaction.prepare_cached(select)?.query_row([], |row| Ok(row.get(0).unwrap_or_default()))
}

/// Remembers a request, so that the store knows the request when it is repeated. Fails if the store
/// knows the request already.
pub(super) fn remember_request(
    transaction: &Transaction<'_>,
    now: BelievedTime,
    request: Option<&RepeatableRequestRow>,
) -> Result<(), WriteError> {
    let Some(RepeatableRequestRow { id, digest, salt, key_id }) = request else { return Ok(()) };
    let forgotten_at = latest_forgotten_request_time(now.unix_now);
    let inserted = transaction.execute(
        "INSERT INTO request VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO UPDATE
         SET digest = ?2, salt = ?3, key_id = ?4, at = ?5 WHERE at <= ?6",
        params![id, digest, salt, key_id, now.unix_now, forgotten_at],
    )?;
    if inserted == 1 { Ok(()) } else { Err(error::repeated_request_error().into()) }
}

#[cfg(test)]
mod tests;
