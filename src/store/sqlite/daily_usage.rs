//! Usage by day, route and key in SQLite.

use rusqlite::{Row, Transaction, params};

use super::columns::{column_text, column_u64, fail_if_unreadable, to_i64_saturating};
use super::connection::Sqlite;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::ledger::UsageCount;
use crate::store::operations::DailyUsageBackend;
use crate::store::rows::{DailyUsageCursor, DailyUsageRow};

impl DailyUsageBackend for Sqlite {
    fn read_daily_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
        after: Option<&DailyUsageCursor>,
        count: usize,
    ) -> Result<Vec<DailyUsageRow>, StoreError> {
        Ok(self.read_daily_usage_page(month, only_account, after, count)?.0)
    }

    fn daily_usage_to_copy(&mut self, month: Month) -> Result<Vec<DailyUsageRow>, StoreError> {
        let (rows, damaged) = self.read_daily_usage_page(month, None, None, usize::MAX)?;
        let unreadable = |account| format!("the usage of {account} by day");
        fail_if_unreadable(damaged, unreadable).map(|()| rows)
    }
}

impl Sqlite {
    /// Reads up to `count` rows after the row `after`. Also returns the accounts of values that
    /// can't be read; the rows leave these values out.
    fn read_daily_usage_page(
        &self,
        month: Month,
        only_account: Option<&str>,
        after: Option<&DailyUsageCursor>,
        count: usize,
    ) -> Result<(Vec<DailyUsageRow>, Vec<String>), StoreError> {
        let start = (String::new(), 0, String::new(), String::new());
        let (account, day, route, key_id) = after.unwrap_or(&start);
        // SQLite finds the first row of a page in the primary key, so each page costs the same.
        let select = |filter: &str| {
            format!(
                "SELECT account, day, route, key_id, calls FROM daily_usage
                 WHERE month = ?1 AND {filter}
                   AND (account, day, route, key_id) > (?3, ?4, ?5, ?6)
                 ORDER BY account, day, route, key_id"
            )
        };
        let select = match only_account {
            Some(_) => select("account = ?2"),
            None => select("?2 IS NULL AND account >= ?3"),
        };
        let parameters = params![month.number(), only_account, account, day, route, key_id];
        self.read("reading usage", |connection| {
            let mut statement = connection.prepare_cached(&select)?;
            let mut stored = statement.query(parameters)?;
            let (mut rows, mut damaged): (Vec<DailyUsageRow>, Vec<String>) = Default::default();
            while let Some(row) = stored.next()? {
                // The rows of the nodes follow one another.
                let Ok(of_node) = parse_row(row) else {
                    damaged.push(column_text(row, 0));
                    continue;
                };
                if let Some(last) = rows.last_mut().filter(|last| is_same_row(last, &of_node)) {
                    last.calls = last.calls.saturating_add(of_node.calls);
                } else if rows.len() < count {
                    rows.push(of_node);
                } else {
                    break;
                }
            }
            Ok((rows, damaged))
        })
    }
}

/// Returns true if both are of the same account, day, route and key.
fn is_same_row(one: &DailyUsageRow, other: &DailyUsageRow) -> bool {
    (&one.account, one.day, &one.route, &one.key_id)
        == (&other.account, other.day, &other.route, &other.key_id)
}

fn parse_row(row: &Row<'_>) -> rusqlite::Result<DailyUsageRow> {
    Ok(DailyUsageRow {
        account: row.get(0)?,
        day: row.get(1)?,
        route: row.get(2)?,
        key_id: row.get(3)?,
        calls: column_u64(row, 4)?,
    })
}

/// Writes the counts of a node. The counts are totals, so writing them twice changes nothing.
pub(super) fn write_usage_counts(
    transaction: &Transaction<'_>,
    node_id: &[u8; 16],
    account: &str,
    counts: &[UsageCount],
) -> rusqlite::Result<()> {
    let mut write = transaction
        .prepare_cached("INSERT OR REPLACE INTO daily_usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    for UsageCount { month, day, route, key_id, calls } in counts {
        let calls = to_i64_saturating(*calls);
        write.execute(params![month.number(), account, day, route, &**key_id, node_id, calls])?;
    }
    Ok(())
}

/// Writes the usage of another store into an empty store, under the node id 0, which no running
/// node has.
pub(super) fn fill_daily_usage(
    transaction: &Transaction<'_>,
    months: &[(Month, Vec<DailyUsageRow>)],
) -> rusqlite::Result<()> {
    let mut insert = transaction
        .prepare("INSERT INTO daily_usage VALUES (?1, ?2, ?3, ?4, ?5, zeroblob(16), ?6)")?;
    for (month, rows) in months {
        for DailyUsageRow { account, day, route, key_id, calls } in rows {
            let calls = to_i64_saturating(*calls);
            insert.execute(params![month.number(), account, day, route, key_id, calls])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
