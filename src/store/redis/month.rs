//! The latest month and the clock of a server, and the repair of the month.

use std::collections::BTreeSet;

use redis::Value as Reply;
use serde_json::Value;

use super::connection::{CHUNK_ROWS, Redis};
use super::key_names::{AUDIT, DAILY_USAGE_PREFIX, LEDGER_PREFIX, RING_META_KEY};
use super::scripts::Script;
use crate::model::believed_time::TimeAnchor;
use crate::model::month::Month;
use crate::store::audit::{ChangeAuthor, change_of_repaired_month};
use crate::store::error::StoreError;
use crate::store::operations::TimeBackend;
use crate::store::rows::MonthRepair;

const REPAIR_OPERATION: &str = "repairing the month";
/// The field of [`RING_META_KEY`] that has the believed time of a gateway.
const BELIEVED_TIME_FIELD: &str = "time";

impl TimeBackend for Redis {
    fn latest_month(&mut self) -> Result<Option<Month>, StoreError> {
        let field = (RING_META_KEY, "month");
        let reply: Reply = self.query_within("reading the month", self.timeout, "HGET", field)?;
        let number = redis::from_redis_value::<Option<u16>>(reply).unwrap_or(None);
        Ok(number.and_then(Month::from_number))
    }

    fn server_unix_now(&mut self) -> Result<Option<i64>, StoreError> {
        let (seconds, _micros): (i64, i64) =
            self.query_within("reading its clock", self.timeout, "TIME", None::<&str>)?;
        Ok(Some(seconds))
    }

    fn time_anchor(&mut self) -> Result<Option<TimeAnchor>, StoreError> {
        let field = (RING_META_KEY, BELIEVED_TIME_FIELD);
        let text: Option<String> = self.query("reading the time", "HGET", field)?;
        Ok(text.and_then(|text| TimeAnchor::parse(&text)))
    }

    fn remember_time(&mut self, anchor: &TimeAnchor) -> Result<(), StoreError> {
        let field = (RING_META_KEY, BELIEVED_TIME_FIELD, anchor.to_string());
        self.query_within("remembering the time", self.timeout, "HSET", field)
    }

    /// Lowers the latest month in one step. Then deletes the quota events, the totals and the usage
    /// by day of later months. If the command is interrupted, some of these remain, and another run
    /// deletes them.
    fn repair_month(
        &mut self,
        author: &ChangeAuthor,
        month: Month,
    ) -> Result<MonthRepair, StoreError> {
        let previous = self.latest_month()?;
        let totals = self.find_keys_of_later_months(LEDGER_PREFIX, month)?;
        let usage = self.find_keys_of_later_months(DAILY_USAGE_PREFIX, month)?;
        let deleted_totals = totals.len() as u64;
        let change = change_of_repaired_month(previous, month, deleted_totals);
        let state = |state: Option<&Value>| state.map_or(String::new(), Value::to_string);
        let arguments = [
            previous.map_or(String::new(), |previous| previous.number().to_string()),
            month.number().to_string(),
            author.to_json().to_string(),
            state(change.as_ref().map(|change| &change.before)),
            state(change.as_ref().map(|change| &change.after)),
        ];
        let keys = [RING_META_KEY, AUDIT];
        self.run_write_script::<()>(REPAIR_OPERATION, Script::LowerMonth, &keys, &arguments)?;
        self.delete_quota_events_after(REPAIR_OPERATION, month)?;
        for chunk in [totals, usage].concat().chunks(CHUNK_ROWS) {
            self.delete_redis_keys(REPAIR_OPERATION, "DEL", chunk)?;
        }
        Ok(MonthRepair { latest_month_before: previous, deleted_totals })
    }
}

impl Redis {
    /// Finds the Redis keys with this prefix that are about a later month than `month`.
    fn find_keys_of_later_months(
        &mut self,
        prefix: &str,
        month: Month,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut found = self.find_keys_by_month(REPAIR_OPERATION, prefix)?;
        found.retain(|(of_key, _)| *of_key > month);
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }

    /// Finds the Redis keys with this prefix that are about a month, and returns each with its
    /// month.
    pub(super) fn find_keys_by_month(
        &mut self,
        operation: &'static str,
        prefix: &str,
    ) -> Result<BTreeSet<(Month, Vec<u8>)>, StoreError> {
        let names = self.find_redis_keys(operation, &format!("{prefix}*}}:*"))?;
        let with_month = |name: Vec<u8>| {
            let text = String::from_utf8_lossy(&name);
            let month = text.rsplit_once("}:").and_then(|(_, text)| Month::parse(text))?;
            Some((month, name))
        };
        Ok(names.into_iter().filter_map(with_month).collect())
    }
}
