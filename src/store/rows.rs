//! Rows of keys, accounts and top counts, as statements of the embedded store.

use rusqlite::{Connection, Transaction, params};

use super::{AccountRow, KeyRow, LimitRow, TopRow};

pub(super) fn insert_key(
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

pub(super) fn read_accounts(connection: &Connection) -> rusqlite::Result<Vec<AccountRow>> {
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

pub(super) fn read_keys(connection: &Connection) -> rusqlite::Result<Vec<KeyRow>> {
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

pub(super) fn read_top(
    connection: &Connection,
    day: i64,
) -> rusqlite::Result<(Vec<TopRow>, Vec<u64>)> {
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

pub(super) fn write_top(
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
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
