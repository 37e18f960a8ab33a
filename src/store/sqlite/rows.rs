//! SQL statements for the rows of keys and accounts, and for the totals of a copy.

use rusqlite::types::{FromSql, ToSql};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde_json::{Value, json};

use super::audit::append_record;
use super::columns::{column_text, column_u64, parse_rows, to_i64_saturating};
use super::connection::WriteError;
use crate::model::believed_time::BelievedTime;
use crate::model::month::format_rfc3339;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::audit::{AuditOperation, Change, ChangeAuthor, account_to_json, key_to_json};
use crate::store::contents::StoreContents;
use crate::store::error;
use crate::store::rows::{AccountRow, DamagedRows, KeyRow};

fn insert_key_and_upsert_account(
    transaction: &Transaction<'_>,
    key: &KeyRow,
    new_plan: Option<&str>,
    ring_version: i64,
) -> rusqlite::Result<()> {
    upsert_account(transaction, &key.account, new_plan, ring_version)?;
    let origins = serde_json::to_string(&key.origins).unwrap_or_else(|_| "[]".to_owned());
    transaction.execute(
        "INSERT INTO api_key VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            key.id,
            key.account,
            key.label,
            key.digest,
            origins,
            key.require_origin,
            key.created_at,
            key.expires_at,
            key.revoked_at,
            ring_version
        ],
    )?;
    Ok(())
}

/// Inserts a key, and creates its account if there is none. Fails if a key has the same id or
/// digest.
pub(super) fn insert_new_key(
    transaction: &Transaction<'_>,
    key: &KeyRow,
    new_plan: Option<&str>,
    ring_version: i64,
) -> Result<(), WriteError> {
    let mut select =
        transaction.prepare_cached("SELECT id FROM api_key WHERE id = ?1 OR digest = ?2")?;
    let known = select.query_row(params![key.id, key.digest], |row| row.get::<_, String>(0));
    match known.optional()? {
        Some(known) => Err(error::key_exists_error(&key.id, &known).into()),
        None => Ok(insert_key_and_upsert_account(transaction, key, new_plan, ring_version)?),
    }
}

/// Creates an account, or changes its plan; a `new_plan` of `None` keeps the plan.
pub(super) fn upsert_account(
    transaction: &Transaction<'_>,
    name: &str,
    new_plan: Option<&str>,
    ring_version: i64,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO account (name, plan, version) VALUES (?1, ?2, ?3)
         ON CONFLICT (name) DO UPDATE
         SET plan = coalesce(excluded.plan, plan), version = excluded.version",
        params![name, new_plan, ring_version],
    )?;
    Ok(())
}

/// Reads the plan in the row of an account. The outer `None` means that there is no such row.
pub(super) fn read_plan_of_account(
    transaction: &Transaction<'_>,
    name: &str,
) -> rusqlite::Result<Option<Option<String>>> {
    let mut statement = transaction.prepare_cached("SELECT plan FROM account WHERE name = ?1")?;
    statement.query_row([name], |row| row.get(0)).optional()
}

/// Reads the accounts that changed after a version of the ring, unordered. Adds the unreadable ones
/// to `damaged`.
pub(super) fn read_changed_accounts(
    connection: &Connection,
    after_version: u64,
    damaged: &mut DamagedRows,
) -> rusqlite::Result<Vec<AccountRow>> {
    let mut statement = connection
        .prepare_cached("SELECT name, plan, calls, unlimited FROM account WHERE version > ?1")?;
    let rows = statement.query([to_i64_saturating(after_version)])?;
    let (accounts, unreadable) = parse_rows(rows, parse_account)?;
    damaged.account_names.extend(unreadable);
    Ok(accounts)
}

/// Reads the keys that changed after a version of the ring, unordered. Adds the unreadable ones to
/// `damaged`.
pub(super) fn read_changed_keys(
    connection: &Connection,
    after_version: u64,
    damaged: &mut DamagedRows,
) -> rusqlite::Result<Vec<KeyRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, account, label, digest, origins, require_origin, created_at, expires_at,
         revoked_at FROM api_key WHERE version > ?1",
    )?;
    let mut rows = statement.query([to_i64_saturating(after_version)])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        match parse_key(row) {
            Ok(key) => keys.push(key),
            Err(_) => drop(damaged.key_digests_by_id.insert(column_text(row, 0), row.get(3).ok())),
        }
    }
    Ok(keys)
}

const SELECT_ACCOUNT: &str = "SELECT name, plan, calls, unlimited FROM account WHERE name = ?1";

fn select_key_where(column: &'static str) -> String {
    format!(
        "SELECT id, account, label, digest, origins, require_origin, created_at, expires_at,
         revoked_at FROM api_key WHERE {column} = ?1",
    )
}

/// Finds the key that has this value in the column `id` or `digest`. `None` if there is none, or if
/// its row can't be read.
pub(super) fn find_key(
    connection: &Connection,
    column: &'static str,
    value: &dyn ToSql,
) -> rusqlite::Result<Option<KeyRow>> {
    let mut statement = connection.prepare_cached(&select_key_where(column))?;
    let read = statement.query_row([value], |row| Ok(parse_key(row).ok())).optional()?;
    Ok(read.flatten())
}

/// Finds an account. `None` if there is none, or if its row can't be read.
pub(super) fn find_account(
    connection: &Connection,
    name: &str,
) -> rusqlite::Result<Option<AccountRow>> {
    let mut statement = connection.prepare_cached(SELECT_ACCOUNT)?;
    let read = statement.query_row([name], |row| Ok(parse_account(row).ok())).optional()?;
    Ok(read.flatten())
}

/// Reads a key as a record of the audit shows it; null if there is no such key. Of a row that can't
/// be read, the record shows the columns that a change may set.
pub(super) fn read_key_for_audit(connection: &Connection, id: &str) -> rusqlite::Result<Value> {
    let to_json = |row: &Row<'_>| {
        let time = |column| column_or_none(row, column).map(format_rfc3339);
        Ok(parse_key(row).as_ref().map_or_else(
            |_| json!({ "damaged": true, "expires_at": time(7), "revoked_at": time(8) }),
            key_to_json,
        ))
    };
    let mut select = connection.prepare_cached(&select_key_where("id"))?;
    Ok(select.query_row([id], to_json).optional()?.unwrap_or_default())
}

/// Reads an account as a record of the audit shows it; null if there is no such account. Of a row
/// that can't be read, the record shows the columns that can be read.
pub(super) fn read_account_for_audit(
    connection: &Connection,
    name: &str,
) -> rusqlite::Result<Value> {
    let to_json = |row: &Row<'_>| {
        let plan: Option<String> = column_or_none(row, 1);
        let calls: Option<i64> = column_or_none(row, 2);
        let unlimited: Option<bool> = column_or_none(row, 3);
        let damaged = json!({
            "damaged": true, "plan": plan, "own_limit": calls, "unlimited": unlimited,
        });
        Ok(parse_account(row).as_ref().map_or(damaged, account_to_json))
    };
    let mut select = connection.prepare_cached(SELECT_ACCOUNT)?;
    Ok(select.query_row([name], to_json).optional()?.unwrap_or_default())
}

/// Returns `None` for a null, and for a value of another type.
fn column_or_none<T: FromSql>(row: &Row<'_>, column: usize) -> Option<T> {
    row.get(column).ok().flatten()
}

/// Appends a record of a change of a key. Its state after the change is read from the store.
pub(super) fn record_key_change(
    transaction: &Transaction<'_>,
    now: BelievedTime,
    author: &ChangeAuthor,
    operation: AuditOperation,
    (id, before): (&str, Value),
) -> rusqlite::Result<()> {
    let after = read_key_for_audit(transaction, id)?;
    let change = Change { operation, target: id.to_owned(), before, after };
    append_record(transaction, now, author, &change)
}

fn parse_account(row: &Row<'_>) -> rusqlite::Result<AccountRow> {
    let calls = row.get::<_, Option<i64>>(2)?.map(|_| column_u64(row, 2)).transpose()?;
    let own_limit = match row.get(3)? {
        true => Some(MonthlyLimit::Unlimited),
        false => calls.map(MonthlyLimit::Calls),
    };
    Ok(AccountRow { name: row.get(0)?, plan: row.get(1)?, own_limit })
}

fn parse_key(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    let origins: String = row.get(4)?;
    let origins = serde_json::from_str(&origins).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, Box::new(error))
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
}

/// Writes the rows as the operation of this name does, without a record. Returns how many rows
/// changed. A digest identifies a key, whatever the key's id in the store.
pub(super) fn write_back_lost_rows(
    transaction: &Transaction<'_>,
    keys: &[KeyRow],
    accounts: &[AccountRow],
    ring_version: i64,
) -> rusqlite::Result<usize> {
    let mut changed = 0;
    for account in accounts {
        changed += insert_account_if_new(transaction, account, ring_version)?;
    }
    let mut select_known =
        transaction.prepare_cached("SELECT 1 FROM api_key WHERE id = ?1 OR digest = ?2")?;
    let mut update_end = transaction.prepare_cached(
        "UPDATE api_key SET expires_at = min(coalesce(expires_at, ?2), coalesce(?2, expires_at)),
         revoked_at = coalesce(revoked_at, ?3), version = ?4 WHERE digest = ?1
         AND (?2 < coalesce(expires_at, ?2 + 1) OR (revoked_at IS NULL AND ?3 IS NOT NULL))",
    )?;
    for key in keys {
        if select_known.exists(params![key.id, key.digest])? {
            let KeyRow { digest, expires_at, revoked_at, .. } = key;
            changed += update_end.execute(params![digest, expires_at, revoked_at, ring_version])?;
        } else {
            insert_key_and_upsert_account(transaction, key, None, ring_version)?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// Returns whether the store holds an account or key, and whether it holds a total.
pub(super) fn has_rows_and_totals(connection: &Connection) -> rusqlite::Result<(bool, bool)> {
    connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM account) OR EXISTS (SELECT 1 FROM api_key),
         EXISTS (SELECT 1 FROM ledger)",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// Writes keys, accounts and totals of another store into an empty store. The copied
/// totals belong to the node id 0, which no running node has.
pub(super) fn fill_ring_and_totals(
    transaction: &Transaction<'_>,
    contents: &StoreContents,
    ring_version: i64,
) -> rusqlite::Result<()> {
    for account in &contents.ring.accounts {
        insert_account_if_new(transaction, account, ring_version)?;
    }
    for key in &contents.ring.keys {
        insert_key_and_upsert_account(transaction, key, None, ring_version)?;
    }
    for row in &contents.usage {
        transaction
            .prepare_cached("INSERT INTO ledger VALUES (?1, ?2, zeroblob(16), 1, ?3, ?4)")?
            .execute(params![
                row.account,
                contents.usage_month.number(),
                to_i64_saturating(row.leased),
                to_i64_saturating(row.spent)
            ])?;
    }
    Ok(())
}

/// Returns how many rows were inserted.
fn insert_account_if_new(
    transaction: &Transaction<'_>,
    account: &AccountRow,
    ring_version: i64,
) -> rusqlite::Result<usize> {
    let (calls, unlimited) = limit_to_columns(account.own_limit);
    transaction
        .prepare_cached("INSERT OR IGNORE INTO account VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![account.name, account.plan, calls, unlimited, ring_version])
}

/// An account's own limit as the columns `calls` and `unlimited`.
pub(super) fn limit_to_columns(limit: Option<MonthlyLimit>) -> (Option<i64>, bool) {
    match limit {
        Some(MonthlyLimit::Calls(calls)) => (Some(to_i64_saturating(calls)), false),
        Some(MonthlyLimit::Unlimited) => (None, true),
        None => (None, false),
    }
}

#[cfg(test)]
mod tests;
