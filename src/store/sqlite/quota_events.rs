//! Quota events in SQLite.

use rusqlite::{Connection, Row, Transaction, params};

use super::columns::{fail_if_unreadable, parse_rows, to_u64_or_zero};
use super::connection::Sqlite;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::operations::QuotaEventBackend;
use crate::store::quota_events::{
    ClaimTimes, ClaimedQuotaEvent, MAX_PENDING_QUOTA_EVENTS, NewQuotaEvent, QuotaEventOutcome,
    QuotaEventRow, QuotaEventState,
};

const READ_OPERATION: &str = "reading the quota events";

impl QuotaEventBackend for Sqlite {
    fn record_quota_events(
        &mut self,
        events: &[NewQuotaEvent],
        forgotten_before: i64,
    ) -> Result<usize, StoreError> {
        const OPERATION: &str = "recording quota events";
        // Most events are known already. A read takes no lock that the ledger waits for.
        if self.read(OPERATION, |connection| are_all_known(connection, events))? {
            return Ok(events.len());
        }
        self.write(OPERATION, |transaction| {
            Ok(insert_events(transaction, events, forgotten_before)?)
        })
    }

    fn claim_quota_events(
        &mut self,
        times: ClaimTimes,
        max: usize,
    ) -> Result<Vec<ClaimedQuotaEvent>, StoreError> {
        const OPERATION: &str = "claiming quota events";
        // Usually nothing is due. A read takes no lock that the ledger waits for.
        if self.read(OPERATION, |connection| select_due(connection, times, 1))?.is_empty() {
            return Ok(Vec::new());
        }
        self.write(OPERATION, |transaction| {
            let mut claimed = select_due(transaction, times, max)?;
            let update = "UPDATE quota_event SET attempts = ?2, due_at = ?3 WHERE key = ?1";
            let mut update = transaction.prepare_cached(update)?;
            for event in &mut claimed {
                event.attempts = event.attempts.saturating_add(1);
                update.execute(params![event.key, event.attempts, times.claimed_until])?;
            }
            Ok(claimed)
        })
    }

    fn finish_quota_event(
        &mut self,
        event: &ClaimedQuotaEvent,
        outcome: QuotaEventOutcome,
    ) -> Result<bool, StoreError> {
        let (due_at, finished_at, delivered) = match outcome {
            QuotaEventOutcome::Delivered(at) => (None, Some(at), true),
            QuotaEventOutcome::GivenUp(at) => (None, Some(at), false),
            QuotaEventOutcome::DueAgain(at) => (Some(at), None, false),
        };
        let update = "UPDATE quota_event SET due_at = ?3, finished_at = ?4, delivered = ?5,
             account = CASE WHEN ?4 IS NULL THEN account ELSE '' END,
             body = CASE WHEN ?4 IS NULL THEN body ELSE '' END
             WHERE key = ?1 AND attempts = ?2 AND due_at IS NOT NULL";
        let values = params![event.key, event.attempts, due_at, finished_at, delivered];
        self.write("finishing a quota event", |transaction| {
            Ok(transaction.execute(update, values)? > 0)
        })
    }

    fn count_pending_quota_events(&mut self) -> Result<u64, StoreError> {
        self.read(READ_OPERATION, count_pending)
    }

    fn quota_events_to_copy(&mut self, month: Month) -> Result<Vec<QuotaEventRow>, StoreError> {
        let select = "SELECT key, account, month, body, created_at, attempts, finished_at,
             delivered FROM quota_event WHERE due_at IS NOT NULL OR month >= ?1 ORDER BY key";
        let (rows, damaged) = self.read(READ_OPERATION, |connection| {
            parse_rows(connection.prepare(select)?.query([month.number()])?, parse_row)
        })?;
        fail_if_unreadable(damaged, |key| format!("the quota event {key}")).map(|()| rows)
    }
}

fn are_all_known(connection: &Connection, events: &[NewQuotaEvent]) -> rusqlite::Result<bool> {
    let mut select = connection.prepare_cached("SELECT 1 FROM quota_event WHERE key = ?1")?;
    for event in events {
        if !select.exists([&event.key])? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn count_pending(connection: &Connection) -> rusqlite::Result<u64> {
    let count = "SELECT count(*) FROM quota_event WHERE due_at IS NOT NULL";
    connection.prepare_cached(count)?.query_row([], |row| row.get(0)).map(to_u64_or_zero)
}

/// Deletes the events that were finished before `forgotten_before`. Then inserts the events that
/// the store does not have, while there are free places. Returns what `record_quota_events`
/// returns.
fn insert_events(
    transaction: &Transaction<'_>,
    events: &[NewQuotaEvent],
    forgotten_before: i64,
) -> rusqlite::Result<usize> {
    transaction
        .prepare_cached("DELETE FROM quota_event WHERE finished_at < ?1")?
        .execute([forgotten_before])?;
    let mut free_places =
        (MAX_PENDING_QUOTA_EVENTS as u64).saturating_sub(count_pending(transaction)?);
    let mut select = transaction.prepare_cached("SELECT 1 FROM quota_event WHERE key = ?1")?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO quota_event (key, account, month, body, created_at, due_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (at, event) in events.iter().enumerate() {
        if select.exists([&event.key])? {
            continue;
        }
        if free_places == 0 {
            return Ok(at);
        }
        free_places -= 1;
        let NewQuotaEvent { key, account, month, body, created_at, due_at } = event;
        insert.execute(params![key, account, month.number(), body, created_at, due_at])?;
    }
    Ok(events.len())
}

/// Selects the first `max` events that are due. Leaves out those that can't be read, until an
/// operator deletes them.
fn select_due(
    connection: &Connection,
    times: ClaimTimes,
    max: usize,
) -> rusqlite::Result<Vec<ClaimedQuotaEvent>> {
    let mut select = connection.prepare_cached(
        "SELECT key, account, body, created_at, attempts FROM quota_event
         WHERE due_at <= ?1 OR due_at > ?2 ORDER BY due_at, key",
    )?;
    let mut found = select.query(params![times.now, times.latest_due])?;
    let mut due = Vec::new();
    while due.len() < max
        && let Some(row) = found.next()?
    {
        due.extend(parse_due(row).ok());
    }
    Ok(due)
}

fn parse_due(row: &Row<'_>) -> rusqlite::Result<ClaimedQuotaEvent> {
    Ok(ClaimedQuotaEvent {
        key: row.get(0)?,
        account: row.get(1)?,
        body: row.get(2)?,
        created_at: row.get(3)?,
        attempts: row.get(4)?,
    })
}

fn parse_row(row: &Row<'_>) -> rusqlite::Result<QuotaEventRow> {
    let (finished_at, delivered): (Option<i64>, bool) = (row.get(6)?, row.get(7)?);
    let state = match finished_at {
        None => QuotaEventState::Pending,
        Some(at) if delivered => QuotaEventState::Delivered(at),
        Some(at) => QuotaEventState::GivenUp(at),
    };
    Ok(QuotaEventRow {
        key: row.get(0)?,
        account: row.get(1)?,
        month: Month::from_number(row.get(2)?).unwrap_or(Month::FIRST),
        body: row.get(3)?,
        created_at: row.get(4)?,
        attempts: row.get(5)?,
        state,
    })
}

/// Writes copied events into an empty store. Pending ones are due at once.
pub(super) fn write_quota_events(
    transaction: &Transaction<'_>,
    events: &[QuotaEventRow],
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT OR REPLACE INTO quota_event VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    for event in events {
        let QuotaEventRow { key, account, month, body, created_at, attempts, state } = event;
        let (due_at, finished_at, delivered) = match state {
            QuotaEventState::Pending => (Some(created_at), None, false),
            QuotaEventState::Delivered(at) => (None, Some(at), true),
            QuotaEventState::GivenUp(at) => (None, Some(at), false),
        };
        insert.execute(params![
            key,
            account,
            month.number(),
            body,
            created_at,
            attempts,
            due_at,
            finished_at,
            delivered
        ])?;
    }
    Ok(())
}
