//! The operator's overrides in SQLite.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::audit::{append_record, select_source_state, set_source_state};
use super::columns::{parse_rows, to_u64_or_zero};
use super::connection::Sqlite;
use super::meta::{read_meta_value, write_meta_value};
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::operations::OverrideBackend;
use crate::store::overrides::{
    KEPT_OVERRIDE_CHANGES, MAX_STORED_OVERRIDES, OverrideTakeOver, OverrideUpdate,
    OverridesVersion, StoredOverride, StoredOverrides, scope_of, too_many_overrides_error,
};

const READ_OPERATION: &str = "reading the overrides";
const WRITE_OPERATION: &str = "changing overrides";
/// The condition for the rows of a domain. Another program may have written the name as bytes.
const IS_OF_DOMAIN: &str = "domain IN (?1, CAST(?1 AS BLOB))";
/// The entry of the table `meta` with the version.
const VERSION_ENTRY: &str = "overrides";

impl OverrideBackend for Sqlite {
    fn overrides_version(&mut self) -> Result<Option<OverridesVersion>, StoreError> {
        self.read(READ_OPERATION, read_version)
    }

    fn stored_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError> {
        self.read_overrides_of_version(read_version)
    }

    fn remaining_overrides(&mut self) -> Result<Option<StoredOverrides>, StoreError> {
        self.read_overrides_of_version(|connection| {
            Ok(Some(read_version(connection)?.unwrap_or_default()))
        })
    }

    fn override_change_id(&mut self, number: u64) -> Result<Option<String>, StoreError> {
        read_meta_value(&self.connection, &change_entry(number))
            .map_err(self.error_while(READ_OPERATION))
    }

    fn find_overrides(&mut self, domain: &str) -> Result<Vec<StoredOverride>, StoreError> {
        let read = |connection: &Connection| select_rows_of_domain(connection, domain);
        Ok(self.read(READ_OPERATION, read)?.0)
    }

    fn update_overrides(
        &mut self,
        author: &ChangeAuthor,
        updates: &[OverrideUpdate<'_>],
    ) -> Result<bool, StoreError> {
        let now = self.told_time.now();
        self.write(WRITE_OPERATION, |transaction| {
            let mut changes = Vec::with_capacity(updates.len());
            for update in updates {
                let (known, damaged) = select_rows_of_domain(transaction, update.domain)?;
                if known != update.before {
                    return Ok(false);
                }
                changes.push((update, update.to_change(!damaged.is_empty())));
            }
            let delete = format!("DELETE FROM domain_override WHERE {IS_OF_DOMAIN}");
            for (update, change) in changes {
                transaction.execute(&delete, [update.domain])?;
                for row in update.after {
                    let is_kept = update.before.contains(row);
                    let (by, at) = match is_kept {
                        true => (&row.author, row.created_at),
                        false => (author, now.unix_now),
                    };
                    let row = StoredOverride { author: by.clone(), created_at: at, ..row.clone() };
                    insert_row(transaction, &row)?;
                }
                append_record(transaction, now, author, &change)?;
            }
            check_count(begin_next_version(transaction)?)?;
            Ok(true)
        })
    }

    fn take_over_overrides(
        &mut self,
        author: &ChangeAuthor,
        take_over: &OverrideTakeOver<'_>,
    ) -> Result<Option<usize>, StoreError> {
        let now = self.told_time.now();
        self.write(WRITE_OPERATION, |transaction| {
            let [content, _] = &take_over.subjects;
            if select_source_state(transaction, content)?.is_some() {
                return Ok(None);
            }
            let mut added = 0;
            for row in take_over.rows {
                let row = StoredOverride { created_at: now.unix_now, ..row.clone() };
                added += insert_row(transaction, &row)?;
            }
            for subject in &take_over.subjects {
                set_source_state(transaction, subject, &take_over.remembered_state())?;
            }
            append_record(transaction, now, author, &take_over.to_change())?;
            check_count(begin_next_version(transaction)?)?;
            Ok(Some(added))
        })
    }
}

fn check_count(count: u64) -> Result<(), StoreError> {
    if count > MAX_STORED_OVERRIDES as u64 { Err(too_many_overrides_error()) } else { Ok(()) }
}

impl Sqlite {
    /// Reads the overrides and their version at one moment; `None` without a version.
    fn read_overrides_of_version(
        &mut self,
        read_version: impl Fn(&Connection) -> rusqlite::Result<Option<OverridesVersion>>,
    ) -> Result<Option<StoredOverrides>, StoreError> {
        let failed = self.error_while(READ_OPERATION);
        let mut read = || -> rusqlite::Result<Option<StoredOverrides>> {
            // Unlike a transaction, a savepoint can be inside a snapshot.
            let savepoint = self.connection.savepoint()?;
            let Some(version) = read_version(&savepoint)? else { return Ok(None) };
            let (rows, damaged) = select_rows(&savepoint, "ORDER BY domain, scope", [])?;
            Ok(Some(StoredOverrides { version, rows, damaged }))
        };
        read().map_err(failed)
    }
}

fn read_version(connection: &Connection) -> rusqlite::Result<Option<OverridesVersion>> {
    let Some(store_id) = read_meta_value(connection, "store_id")? else { return Ok(None) };
    let text: Option<String> = read_meta_value(connection, VERSION_ENTRY)?;
    Ok(OverridesVersion::parse(store_id, text.as_deref()))
}

/// Begins the next version. Returns how many overrides it has.
fn begin_next_version(transaction: &Transaction<'_>) -> rusqlite::Result<u64> {
    let count = "SELECT count(*) FROM domain_override";
    let count = to_u64_or_zero(transaction.query_row(count, [], |row| row.get(0))?);
    let change_id: String =
        transaction.query_row("SELECT lower(hex(randomblob(16)))", [], |row| row.get(0))?;
    let before = read_version(transaction)?.map_or(0, |before| before.number);
    let next = OverridesVersion { store_id: String::new(), number: before + 1, change_id, count };
    write_meta_value(transaction, VERSION_ENTRY, next.to_stored_text())?;
    write_meta_value(transaction, &change_entry(next.number), &next.change_id)?;
    if let Some(forgotten) = next.number.checked_sub(KEPT_OVERRIDE_CHANGES) {
        transaction.execute("DELETE FROM meta WHERE key = ?1", [change_entry(forgotten)])?;
    }
    Ok(count)
}

/// The entry of the table `meta` with the id of the change that led to a version.
fn change_entry(number: u64) -> String {
    format!("override_change:{number}")
}

/// Inserts a row, unless there is one of its name and scope. Returns how many rows were inserted.
fn insert_row(transaction: &Transaction<'_>, row: &StoredOverride) -> rusqlite::Result<usize> {
    let author = row.author.to_json().to_string();
    transaction
        .prepare_cached("INSERT OR IGNORE INTO domain_override VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![row.domain, row.scope(), row.text, author, row.created_at])
}

/// Writes copied overrides into an empty store.
pub(super) fn fill_overrides(
    transaction: &Transaction<'_>,
    rows: &[StoredOverride],
) -> rusqlite::Result<()> {
    for row in rows {
        insert_row(transaction, row)?;
    }
    if rows.is_empty() { Ok(()) } else { begin_next_version(transaction).map(drop) }
}

/// Returns true if the store has no override.
pub(super) fn has_no_override(connection: &Connection) -> rusqlite::Result<bool> {
    let first = connection.query_row("SELECT 1 FROM domain_override LIMIT 1", [], |_| Ok(()));
    Ok(first.optional()?.is_none())
}

/// Reads the rows of a domain, the exact one first, and the names of those that can't be read.
fn select_rows_of_domain(
    connection: &Connection,
    domain: &str,
) -> rusqlite::Result<(Vec<StoredOverride>, Vec<String>)> {
    select_rows(connection, &format!("WHERE {IS_OF_DOMAIN} ORDER BY scope"), [domain])
}

/// Reads rows, and the names of those that can't be read.
fn select_rows(
    connection: &Connection,
    condition: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<(Vec<StoredOverride>, Vec<String>)> {
    let select =
        format!("SELECT domain, scope, text, author, created_at FROM domain_override {condition}");
    let mut statement = connection.prepare_cached(&select)?;
    parse_rows(statement.query(values)?, |row| parse_row(row).ok_or(rusqlite::Error::InvalidQuery))
}

/// Returns `None` if riskgate did not write the row.
fn parse_row(row: &Row<'_>) -> Option<StoredOverride> {
    let scope: String = row.get(1).ok()?;
    let is_exact = scope == scope_of(true);
    let author = serde_json::from_str(&row.get::<_, String>(3).ok()?).ok()?;
    (scope == scope_of(is_exact)).then_some(StoredOverride {
        domain: row.get(0).ok()?,
        is_exact,
        text: row.get(2).ok()?,
        author: ChangeAuthor::from_json(&author)?,
        created_at: row.get(4).ok()?,
    })
}
