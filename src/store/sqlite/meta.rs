//! Reads and writes rows of the table `meta`, and increments the version of the ring. The rows of
//! `meta` are the store id, the version and the change ids of the ring, the latest month, the
//! believed time of the gateway, the version and the change ids of the overrides, a version that no
//! deleted DNS fact exceeds, the inbox secret, the mark of the inbox ids and its confirmation.

use rusqlite::{Connection, OptionalExtension, ToSql, Transaction, params};

use super::columns::to_u64_or_zero;
use crate::store::rows::RingVersion;

/// Reads the store id and the version. `None` if the store has lost its id.
pub(super) fn read_ring_version(connection: &Connection) -> rusqlite::Result<Option<RingVersion>> {
    let Some(store_id) = read_meta_value(connection, "store_id")? else { return Ok(None) };
    let version = to_u64_or_zero(read_meta_value(connection, "ring_version")?.unwrap_or(0));
    Ok(Some(RingVersion { store_id, version, change_id: read_change_id(connection, version)? }))
}

/// The id of the change that led to a version; `None` if the store does not know it.
pub(super) fn read_change_id(
    connection: &Connection,
    version: u64,
) -> rusqlite::Result<Option<String>> {
    read_meta_value(connection, &format!("change:{version}"))
}

pub(super) fn read_meta_value<T: rusqlite::types::FromSql>(
    connection: &Connection,
    key: &str,
) -> rusqlite::Result<Option<T>> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()
}

pub(super) fn write_meta_value(
    transaction: &Transaction<'_>,
    key: &str,
    value: impl ToSql,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?
        .execute(params![key, value])
        .map(drop)
}

/// How many of the latest changes keep their ids.
const KEPT_CHANGE_IDS: i64 = 1_000;

/// Increments the version of keys and accounts, and returns the new version. Each change gets a
/// random id, because two changes may lead to the same version: one before and one after the file
/// was restored from a backup.
pub(super) fn increment_ring_version(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    let version: i64 = transaction.query_row(
        "UPDATE meta SET value = value + 1 WHERE key = 'ring_version' RETURNING value",
        [],
        |row| row.get(0),
    )?;
    transaction.execute(
        "INSERT OR REPLACE INTO meta VALUES ('change:' || ?1, lower(hex(randomblob(16))))",
        [version],
    )?;
    transaction
        .execute("DELETE FROM meta WHERE key = 'change:' || ?1", [version - KEPT_CHANGE_IDS])?;
    Ok(version)
}
