//! The latest month and the clock of a server, and the repair of the month.

use redis::Value;
use serde_json::json;

use super::connection::{BULK_TIMEOUT, CHUNK_ROWS, Redis};
use super::key_names::{AUDIT, DAILY_USAGE_PREFIX, LEDGER_PREFIX, RING_META_KEY};
use super::reply::reply_number_or_zero;
use super::scripts::Script;
use crate::model::believed_time::TimeAnchor;
use crate::model::month::Month;
use crate::store::audit::ChangeAuthor;
use crate::store::error::StoreError;
use crate::store::operations::time::TimeBackend;
use crate::store::rows::MonthRepair;

/// The field of the believed time of a gateway.
const TIME_ANCHOR_FIELD: &str = "time";

impl TimeBackend for Redis {
    fn latest_month(&mut self) -> Result<Option<Month>, StoreError> {
        let mut read = redis::pipe();
        read.cmd("HGET").arg(RING_META_KEY).arg("month");
        let reply = self.query_with_retry("reading the month", &read)?.pop().unwrap_or(Value::Nil);
        let number = redis::from_redis_value::<Option<u16>>(reply).unwrap_or(None);
        Ok(number.and_then(Month::from_number))
    }

    fn unix_now(&mut self) -> Result<Option<i64>, StoreError> {
        const OPERATION: &str = "reading its clock";
        let mut read = redis::pipe();
        read.cmd("TIME");
        let reply = self.query_with_retry(OPERATION, &read)?.pop().unwrap_or(Value::Nil);
        let (seconds, _micros): (i64, i64) = self.parse_reply(OPERATION, reply)?;
        Ok(Some(seconds))
    }

    fn time_anchor(&mut self) -> Result<Option<TimeAnchor>, StoreError> {
        let mut read = redis::pipe();
        read.cmd("HGET").arg(RING_META_KEY).arg(TIME_ANCHOR_FIELD);
        let text: Option<String> = self.query_last_reply("reading the time", &read)?;
        Ok(text.and_then(|text| TimeAnchor::parse(&text)))
    }

    fn remember_time(&mut self, anchor: &TimeAnchor) -> Result<(), StoreError> {
        let mut write = redis::pipe();
        write.cmd("HSET").arg(RING_META_KEY).arg(TIME_ANCHOR_FIELD).arg(anchor.to_string());
        self.query_with_retry("remembering the time", &write).map(drop)
    }

    /// Lowers the latest month in one step, and then deletes the totals of later months in chunks.
    /// If the command is interrupted, some of these totals remain, and another run deletes them.
    fn repair_month(
        &mut self,
        author: &ChangeAuthor,
        month: Month,
    ) -> Result<MonthRepair, StoreError> {
        const OPERATION: &str = "repairing the month";
        let after = json!({ "month": month.to_string() }).to_string();
        let arguments = [month.number().to_string(), author.to_json().to_string(), after];
        let keys = [RING_META_KEY, AUDIT];
        let reply = self.run_write_script(OPERATION, Script::LowerMonth, &keys, &arguments)?;
        let previous: i64 = self.parse_reply(OPERATION, reply)?;
        let previous = u16::try_from(previous).ok().and_then(Month::from_number);
        self.delete_quota_events_after(OPERATION, month)?;
        let mut dropped = 0;
        let mut cursor = 0u64;
        loop {
            let mut scan = redis::pipe();
            // Finds the Redis keys of the totals and of the usage by day, and some others.
            scan.cmd("SCAN").arg(cursor).arg("MATCH").arg("riskgate:*{*}:*").arg("COUNT");
            scan.arg(CHUNK_ROWS);
            let (next, names): (u64, Vec<Vec<u8>>) = self.query_last_reply(OPERATION, &scan)?;
            for prefix in [LEDGER_PREFIX, DAILY_USAGE_PREFIX] {
                let is_later = |name: &&Vec<u8>| {
                    let name = String::from_utf8_lossy(name);
                    let month_of_key = name.strip_prefix(prefix).and_then(|rest| {
                        rest.rsplit_once("}:").and_then(|(_, text)| Month::parse(text))
                    });
                    month_of_key.is_some_and(|month_of_key| month_of_key > month)
                };
                let later_keys: Vec<&Vec<u8>> = names.iter().filter(is_later).collect();
                if later_keys.is_empty() {
                    continue;
                }
                let mut delete = redis::pipe();
                delete.cmd("DEL").arg(&later_keys);
                let replies = self.query_with_retry_within(OPERATION, BULK_TIMEOUT, &delete)?;
                if prefix == LEDGER_PREFIX {
                    dropped += replies.into_iter().map(reply_number_or_zero).sum::<u64>();
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(MonthRepair { latest_month_before: previous, deleted_totals: dropped });
            }
        }
    }
}
