//! The latest month, and the believed time of a gateway.

use super::audit::append_record;
use super::connection::Sqlite;
use super::meta::read_meta_value;
use super::rows::to_u64_or_zero;
use crate::model::believed_time::TimeAnchor;
use crate::model::month::Month;
use crate::store::audit::{ChangeAuthor, change_of_repaired_month};
use crate::store::error::StoreError;
use crate::store::operations::TimeBackend;
use crate::store::rows::MonthRepair;

/// The key of the row of `meta` that has the gateway's believed time.
const TIME_ANCHOR_KEY: &str = "time";

impl TimeBackend for Sqlite {
    fn latest_month(&mut self) -> Result<Option<Month>, StoreError> {
        let number: Option<i64> = read_meta_value(&self.connection, "month")
            .map_err(self.error_while("reading the month"))?;
        Ok(number.and_then(|n| u16::try_from(n).ok()).and_then(Month::from_number))
    }

    fn repair_month(
        &mut self,
        author: &ChangeAuthor,
        month: Month,
    ) -> Result<MonthRepair, StoreError> {
        let (failed, now) = (self.error_while("repairing the month"), self.told_time.now());
        let previous = self.latest_month()?;
        let transaction = self.begin_write_transaction("repairing the month")?;
        let after_month = [month.number()];
        let set = "UPDATE meta SET value = ?1 WHERE key = 'month' AND value > ?1";
        transaction.execute(set, after_month).map_err(&failed)?;
        let count = "SELECT count(DISTINCT account || ' ' || month) FROM ledger WHERE month > ?1";
        let dropped: i64 =
            transaction.query_row(count, after_month, |row| row.get(0)).map_err(&failed)?;
        for table in ["ledger", "daily_usage", "quota_event"] {
            let delete = format!("DELETE FROM {table} WHERE month > ?1");
            transaction.execute(&delete, after_month).map_err(&failed)?;
        }
        // The operator says that the clocks are right now. What the gateway believed may be wrong.
        let forget_time = "DELETE FROM meta WHERE key = ?1";
        transaction.execute(forget_time, [TIME_ANCHOR_KEY]).map_err(&failed)?;
        let dropped = to_u64_or_zero(dropped);
        if let Some(change) = change_of_repaired_month(previous, month, dropped) {
            append_record(&transaction, now, author, &change).map_err(&failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok(MonthRepair { latest_month_before: previous, deleted_totals: dropped })
    }

    fn time_anchor(&mut self) -> Result<Option<TimeAnchor>, StoreError> {
        let text: Option<String> = read_meta_value(&self.connection, TIME_ANCHOR_KEY)
            .map_err(self.error_while("reading the time"))?;
        Ok(text.and_then(|text| TimeAnchor::parse(&text)))
    }

    fn remember_time(&mut self, anchor: &TimeAnchor) -> Result<(), StoreError> {
        const OPERATION: &str = "remembering the time";
        let failed = self.error_while(OPERATION);
        let transaction = self.begin_write_transaction(OPERATION)?;
        let values = [TIME_ANCHOR_KEY, &anchor.to_string()];
        transaction
            .execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", values)
            .map_err(&failed)?;
        transaction.commit().map_err(failed)
    }
}
