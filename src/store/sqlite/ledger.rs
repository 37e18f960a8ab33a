//! The ledger operations in SQLite: many reports, one commit.

use rusqlite::{Row, Transaction, params};

use super::columns::{column_text, column_u64, to_i64_saturating};
use super::connection::Sqlite;
use super::daily_usage::write_usage_counts;
use super::files::unusable;
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::ledger::{Grant, LeaseReport, Probe, ReportBatchContext, ReportOutcome};
use crate::store::operations::LedgerBackend;
use crate::store::rows::{KEPT_PAST_MONTHS, UsageRow};

const READ_OPERATION: &str = "reading usage";

impl LedgerBackend for Sqlite {
    fn probe(&mut self, _: Month, _: Option<&Probe>) -> Result<Probe, StoreError> {
        Ok(Probe::default())
    }

    /// Applies all reports in one commit. A report fails alone in two cases:
    /// - Another program has written values into the account's rows that riskgate can't read.
    /// - The store has lost the row that it acknowledged to this node, or has an older row.
    fn report_leases(
        &mut self,
        context: ReportBatchContext<'_>,
        reports: &[LeaseReport],
    ) -> Result<Vec<ReportOutcome>, StoreError> {
        const OPERATION: &str = "reporting leases";
        let failed = self.error_while(OPERATION);
        let may_delete = self.told_time.now().allows_deletion();
        let path = self.path.clone();
        let lost_row = || {
            let found = "older totals or none; restart riskgate to continue with this file";
            unusable(&path, "the totals that this process wrote", found)
        };
        self.write(OPERATION, |transaction| {
            let month = context.latest_begun_month;
            if raise_latest_month(transaction, month)? && may_delete {
                delete_old_totals(transaction, month)?;
            }
            let mut outcomes = Vec::with_capacity(reports.len());
            for report in reports {
                outcomes.push(match apply_report(transaction, context.node_id, report) {
                    Err(error) if is_unreadable_value(&error) => Err(failed(error)),
                    applied => applied?.ok_or_else(lost_row),
                });
            }
            Ok(outcomes)
        })
    }

    fn read_spent_by_others(
        &mut self,
        account: &str,
        month: Month,
        node_id: &[u8; 16],
    ) -> Result<u64, StoreError> {
        self.read(READ_OPERATION, |connection| {
            let mut select = connection.prepare_cached(
                "SELECT spent FROM ledger WHERE account = ?1 AND month = ?2 AND node <> ?3",
            )?;
            let mut rows = select.query(params![account, month.number(), node_id])?;
            let mut spent = 0;
            while let Some(row) = rows.next()? {
                spent = add_total(spent, row, 0)?;
            }
            Ok(spent)
        })
    }

    fn latest_month_with_totals(&mut self) -> Result<Option<Month>, StoreError> {
        let month: Option<u16> = self.read(READ_OPERATION, |connection| {
            connection.query_row("SELECT max(month) FROM ledger", [], |row| row.get(0))
        })?;
        Ok(month.and_then(Month::from_number))
    }

    fn read_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let select = "SELECT account, spent, leased FROM ledger
                      WHERE month = ?1 AND (?2 IS NULL OR account = ?2) ORDER BY account";
        self.read(READ_OPERATION, |connection| {
            let mut statement = connection.prepare(select)?;
            let mut rows = statement.query(params![month.number(), only_account])?;
            let mut usage: Vec<UsageRow> = Vec::new();
            while let Some(row) = rows.next()? {
                add_to_usage(&mut usage, row);
            }
            Ok(usage)
        })
    }

    fn list_accounts_with_calls(&mut self, month: Month) -> Result<Vec<String>, StoreError> {
        let select = "SELECT DISTINCT account FROM ledger WHERE month = ?1
                      UNION SELECT DISTINCT account FROM daily_usage WHERE month = ?1";
        self.read(READ_OPERATION, |connection| {
            let mut statement = connection.prepare(select)?;
            let names = statement.query_map([month.number()], |row| Ok(column_text(row, 0)))?;
            names.collect()
        })
    }
}

/// Returns true if a value of a row is none that riskgate writes.
fn is_unreadable_value(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    matches!(
        error,
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..)
    )
}

/// Raises the store's latest month to `month`, unless the latest month is `month` or later already.
/// Returns true if the latest month was raised.
pub(super) fn raise_latest_month(
    transaction: &Transaction<'_>,
    month: Month,
) -> rusqlite::Result<bool> {
    let raised = transaction
        .prepare_cached(
            "INSERT INTO meta VALUES ('month', ?1) ON CONFLICT (key) DO UPDATE
             SET value = excluded.value WHERE value < excluded.value",
        )?
        .execute([month.number()])?;
    Ok(raised > 0)
}

/// Deletes totals and usage by day of all months more than [`KEPT_PAST_MONTHS`] before `month`.
fn delete_old_totals(transaction: &Transaction<'_>, month: Month) -> rusqlite::Result<()> {
    let before = month.number().saturating_sub(KEPT_PAST_MONTHS);
    transaction.execute("DELETE FROM ledger WHERE month < ?1", [before])?;
    transaction.execute("DELETE FROM daily_usage WHERE month < ?1", [before])?;
    Ok(())
}

/// Adds a row with the columns account, spent and leased to the usage of its account, whose rows
/// follow one another.
fn add_to_usage(usage: &mut Vec<UsageRow>, row: &Row<'_>) {
    let account = column_text(row, 0);
    if usage.last().is_none_or(|last| last.account != account) {
        usage.push(UsageRow { account, spent: 0, leased: 0, is_damaged: false });
    }
    let Some(last) = usage.last_mut().filter(|last| !last.is_damaged) else { return };
    let sums = row
        .get::<_, String>(0)
        .and_then(|_| Ok((add_total(last.spent, row, 1)?, add_total(last.leased, row, 2)?)));
    last.is_damaged = sums.is_err();
    (last.spent, last.leased) = sums.unwrap_or_default();
}

/// Adds the total in a column. Fails if riskgate writes no such total, or if the sum is not below
/// 2^63. `sum()` of SQLite would fail with an error that names no value.
fn add_total(sum: u64, row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let total = column_u64(row, column)?;
    sum.checked_add(total)
        .filter(|sum| i64::try_from(*sum).is_ok())
        .ok_or(rusqlite::Error::IntegralValueOutOfRange(column, total.cast_signed()))
}

/// The totals of an account and month in the store, as a node sees them.
#[derive(Default)]
struct StoredTotals {
    own_sequence: u64,
    own_leased: u64,
    others_leased: u64,
    others_spent: u64,
}

impl StoredTotals {
    fn read(
        transaction: &Transaction<'_>,
        node_id: &[u8; 16],
        report: &LeaseReport,
    ) -> rusqlite::Result<StoredTotals> {
        let mut select = transaction.prepare_cached(
            "SELECT node = ?3, sequence, leased, spent FROM ledger
             WHERE account = ?1 AND month = ?2",
        )?;
        let LeaseReport { account, month, .. } = report;
        let mut rows = select.query(params![account, month.number(), node_id])?;
        let mut totals = StoredTotals::default();
        while let Some(row) = rows.next()? {
            if row.get(0)? {
                totals.own_sequence = add_total(0, row, 1)?;
                totals.own_leased = add_total(0, row, 2)?;
            } else {
                totals.others_leased = add_total(totals.others_leased, row, 2)?;
                totals.others_spent = add_total(totals.others_spent, row, 3)?;
            }
        }
        Ok(totals)
    }
}

/// Applies a report. Returns `None` and changes nothing if the store has lost the row that it
/// acknowledged to the node, or has an older row.
fn apply_report(
    transaction: &Transaction<'_>,
    node_id: &[u8; 16],
    report: &LeaseReport,
) -> rusqlite::Result<Option<Grant>> {
    let LeaseReport { account, month, sequence, .. } = report;
    let totals = StoredTotals::read(transaction, node_id, report)?;
    let StoredTotals { own_sequence, others_leased, others_spent, .. } = totals;
    if own_sequence < report.known.sequence {
        return Ok(None);
    }
    let grant_of = |own_leased| {
        Some(Grant { own_leased, others_leased, others_spent, revision: 0, is_recovering: false })
    };
    if *sequence <= own_sequence {
        return Ok(grant_of(totals.own_leased));
    }
    let own_leased = Grant::decide_leased(report, others_leased);
    let [sequence, leased, spent] = [*sequence, own_leased, report.spent].map(to_i64_saturating);
    transaction
        .prepare_cached(
            "INSERT INTO ledger VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET sequence = excluded.sequence, leased = excluded.leased,
             spent = excluded.spent",
        )?
        .execute(params![account, month.number(), node_id, sequence, leased, spent])?;
    write_usage_counts(transaction, node_id, account, &report.usage)?;
    Ok(grant_of(own_leased))
}

#[cfg(test)]
mod tests;
