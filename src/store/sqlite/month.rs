//! The latest month, and the believed time of a gateway.

use super::audit::append_record;
use super::columns::to_u64_or_zero;
use super::connection::Sqlite;
use super::meta::{read_meta_value, write_meta_value};
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
        let number: Option<i64> =
            self.read("reading the month", |connection| read_meta_value(connection, "month"))?;
        Ok(number.and_then(|n| u16::try_from(n).ok()).and_then(Month::from_number))
    }

    fn repair_month(
        &mut self,
        author: &ChangeAuthor,
        month: Month,
    ) -> Result<MonthRepair, StoreError> {
        let now = self.told_time.now();
        let previous = self.latest_month()?;
        self.write("repairing the month", |transaction| {
            let after_month = [month.number()];
            let set = "UPDATE meta SET value = ?1 WHERE key = 'month' AND value > ?1";
            transaction.execute(set, after_month)?;
            let count =
                "SELECT count(DISTINCT account || ' ' || month) FROM ledger WHERE month > ?1";
            let deleted = transaction.query_row(count, after_month, |row| row.get(0))?;
            for table in ["ledger", "daily_usage", "quota_event"] {
                let delete = format!("DELETE FROM {table} WHERE month > ?1");
                transaction.execute(&delete, after_month)?;
            }
            // The operator says that the clocks are right now. What the gateway believed may be
            // wrong.
            transaction.execute("DELETE FROM meta WHERE key = ?1", [TIME_ANCHOR_KEY])?;
            let deleted_totals = to_u64_or_zero(deleted);
            if let Some(change) = change_of_repaired_month(previous, month, deleted_totals) {
                append_record(transaction, now, author, &change)?;
            }
            Ok(MonthRepair { latest_month_before: previous, deleted_totals })
        })
    }

    fn time_anchor(&mut self) -> Result<Option<TimeAnchor>, StoreError> {
        let text: Option<String> = self
            .read("reading the time", |connection| read_meta_value(connection, TIME_ANCHOR_KEY))?;
        Ok(text.and_then(|text| TimeAnchor::parse(&text)))
    }

    fn remember_time(&mut self, anchor: &TimeAnchor) -> Result<(), StoreError> {
        self.write("remembering the time", |transaction| {
            Ok(write_meta_value(transaction, TIME_ANCHOR_KEY, anchor.to_string())?)
        })
    }
}
