//! The ledger operations in SQLite: many reports, one commit.

use rusqlite::{Connection, Transaction, params};

use super::connection::Sqlite;
use super::daily_usage::write_usage_counts;
use super::rows::{to_i64_saturating, to_u64_or_zero};
use crate::model::month::Month;
use crate::store::error::StoreError;
use crate::store::ledger::{Grant, LeaseReport, Probe, ReportBatchContext, ReportOutcome};
use crate::store::operations::ledger::LedgerBackend;
use crate::store::rows::{DailyUsageCursor, DailyUsageRow, KEPT_PAST_MONTHS, UsageRow};

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
        let failed = self.error_while("reporting leases");
        let location = self.path.display().to_string();
        let may_delete = self.told_time.now().allows_deletion();
        let transaction = self.begin_write_transaction("reporting leases")?;
        let month = context.latest_begun_month;
        if raise_latest_month(&transaction, month).map_err(&failed)? && may_delete {
            delete_old_totals(&transaction, month).map_err(&failed)?;
        }
        let lost_row = || StoreError::Unusable {
            location: location.clone(),
            expected: "the totals that this process wrote",
            found: "older totals or none; restart riskgate to continue with this file".to_owned(),
        };
        let mut outcomes = Vec::with_capacity(reports.len());
        for report in reports {
            outcomes.push(match apply_report(&transaction, context.node_id, report) {
                Err(error) if is_unreadable_value(&error) => Err(failed(error)),
                applied => applied.map_err(&failed)?.ok_or_else(lost_row),
            });
        }
        transaction.commit().map_err(&failed)?;
        Ok(outcomes)
    }

    fn read_spent_by_others(
        &mut self,
        account: &str,
        month: Month,
        node_id: &[u8; 16],
    ) -> Result<u64, StoreError> {
        select_spent_by_others(&self.connection, account, month, node_id)
            .map_err(self.error_while("reading usage"))
    }

    fn latest_month_with_totals(&mut self) -> Result<Option<Month>, StoreError> {
        let select = "SELECT max(month) FROM ledger";
        let month: Option<u16> = self
            .connection
            .query_row(select, [], |row| row.get(0))
            .map_err(self.error_while("reading usage"))?;
        Ok(month.and_then(Month::from_number))
    }

    fn read_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let failed = self.error_while("reading usage");
        let mut statement = self
            .connection
            .prepare(
                "SELECT account, sum(spent), sum(leased) FROM ledger
                 WHERE month = ?1 AND (?2 IS NULL OR account = ?2) GROUP BY account ORDER BY account",
            )
            .map_err(&failed)?;
        let rows = statement
            .query_map(params![month.number(), only_account], |row| {
                let account = row.get(0)?;
                let totals: rusqlite::Result<[i64; 2]> =
                    row.get(1).and_then(|spent| Ok([spent, row.get(2)?]));
                Ok(match totals {
                    Ok([spent, leased]) => UsageRow {
                        account,
                        spent: to_u64_or_zero(spent),
                        leased: to_u64_or_zero(leased),
                        is_damaged: false,
                    },
                    Err(_) => UsageRow { account, spent: 0, leased: 0, is_damaged: true },
                })
            })
            .map_err(&failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    fn read_daily_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
        after: Option<&DailyUsageCursor>,
        count: usize,
    ) -> Result<Vec<DailyUsageRow>, StoreError> {
        self.read_daily_usage_page(month, only_account, after, count)
    }

    fn daily_usage_to_copy(&mut self, month: Month) -> Result<Vec<DailyUsageRow>, StoreError> {
        self.read_daily_usage_page(month, None, None, usize::MAX)
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

/// Returns the calls that all nodes but `node_id` have spent. A negative total, which riskgate
/// never writes, becomes a number above `i64::MAX`, which `check_total_below_2_to_63` then refuses.
fn select_spent_by_others(
    connection: &Connection,
    account: &str,
    month: Month,
    node_id: &[u8; 16],
) -> rusqlite::Result<u64> {
    connection
        .prepare_cached(
            "SELECT coalesce(sum(spent), 0) FROM ledger
             WHERE account = ?1 AND month = ?2 AND node <> ?3",
        )?
        .query_row(params![account, month.number(), node_id.as_slice()], |row| {
            row.get(0).map(i64::cast_unsigned)
        })
}

/// Applies a report. Returns `None` and changes nothing if the store has lost the row that it
/// acknowledged to the node, or has an older row.
fn apply_report(
    transaction: &Transaction<'_>,
    node_id: &[u8; 16],
    report: &LeaseReport,
) -> rusqlite::Result<Option<Grant>> {
    let LeaseReport { account, month, sequence, .. } = report;
    let [known_sequence, previous_leased, others_leased, others_spent] = transaction
        .prepare_cached(
            "SELECT coalesce(sum(CASE WHEN node = ?3 THEN sequence END), 0),
                    coalesce(sum(CASE WHEN node = ?3 THEN leased END), 0),
                    coalesce(sum(CASE WHEN node <> ?3 THEN leased END), 0),
                    coalesce(sum(CASE WHEN node <> ?3 THEN spent END), 0)
             FROM ledger WHERE account = ?1 AND month = ?2",
        )?
        .query_row(params![account, month.number(), node_id.as_slice()], |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?].map(i64::cast_unsigned))
        })?;
    if known_sequence < report.known.sequence {
        return Ok(None);
    }
    let grant_of = |own_leased| {
        Some(Grant { own_leased, others_leased, others_spent, revision: 0, is_recovering: false })
    };
    if *sequence <= known_sequence {
        return Ok(grant_of(previous_leased));
    }
    let own_leased = Grant::decide_leased(report, others_leased);
    transaction
        .prepare_cached(
            "INSERT INTO ledger VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT DO UPDATE SET sequence = excluded.sequence, leased = excluded.leased,
             spent = excluded.spent",
        )?
        .execute(params![
            account,
            month.number(),
            node_id.as_slice(),
            to_i64_saturating(*sequence),
            to_i64_saturating(own_leased),
            to_i64_saturating(report.spent)
        ])?;
    write_usage_counts(transaction, node_id, account, &report.usage)?;
    Ok(grant_of(own_leased))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::believed_time::{BelievedTime, TimeTrust};

    /// Reports about a few months, each as soon as it has begun, and returns how many rows each has
    /// left.
    fn months_left(trust: TimeTrust) -> [usize; 4] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&folder.path().join("s.db"), Duration::from_secs(5)).unwrap();
        let month = |number| Month::from_number(number).unwrap();
        for now in [300, 312, 313, 325] {
            let report = LeaseReport {
                account: "acme".to_owned(),
                month: month(now),
                sequence: u64::from(now),
                target: 1,
                floor: 0,
                spent: 0,
                limit: None,
                known: Default::default(),
                usage: Vec::new(),
            };
            let context = ReportBatchContext {
                node_id: &[1; 16],
                latest_begun_month: month(now),
                recovery_left: Duration::ZERO,
                needs_replicas: true,
            };
            store.told_time.set(BelievedTime { unix_now: month(now).start(), trust });
            store.report_leases(context, &[report]).unwrap();
        }
        [300, 312, 313, 325].map(|number| store.read_usage(month(number), None).unwrap().len())
    }

    #[test]
    fn a_new_month_deletes_totals_older_than_thirteen_months_if_the_time_is_settled() {
        assert_eq!(months_left(TimeTrust::Settled), [0, 1, 1, 1]);
        for trust in [TimeTrust::Known, TimeTrust::LowerBound] {
            assert_eq!(months_left(trust), [1, 1, 1, 1], "{trust:?}");
        }
    }
}
