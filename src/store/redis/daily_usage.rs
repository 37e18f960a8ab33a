//! Usage by day, route and key on a server: one hash for each account and month.
//!
//! A field is `DAY ROUTE NODE KEY`, and its value the calls. The script of the lease reports writes
//! the fields.

use std::collections::BTreeMap;

use super::connection::{CHUNK_ROWS, Redis};
use super::fill::{COPY_NODE_ID, OnExistingKey, Staging};
use super::key_names::{DAILY_USAGE_PREFIX, DAILY_USAGE_TTL_SECONDS, daily_usage_key};
use crate::model::month::Month;
use crate::store::contents::StoreContents;
use crate::store::error::{StoreError, unreadable_row_error};
use crate::store::ledger::UsageCount;
use crate::store::operations::DailyUsageBackend;
use crate::store::rows::{DailyUsageCursor, DailyUsageRow};

const OPERATION: &str = "reading usage";

impl DailyUsageBackend for Redis {
    fn read_daily_usage(
        &mut self,
        month: Month,
        only_account: Option<&str>,
        after: Option<&DailyUsageCursor>,
        count: usize,
    ) -> Result<Vec<DailyUsageRow>, StoreError> {
        let accounts = match only_account {
            Some(account) => vec![account.to_owned()],
            None => {
                let names = self.find_accounts_of_month(DAILY_USAGE_PREFIX, month)?;
                names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect()
            }
        };
        let mut rows = Vec::new();
        for account in accounts {
            if after.is_some_and(|after| account < after.0) {
                continue;
            }
            if rows.len() >= count {
                break;
            }
            let (of_account, _) = self.read_daily_usage_of_account(month, &account)?;
            rows.extend(
                of_account
                    .into_iter()
                    .filter(|row| after.is_none_or(|after| row.cursor() > *after)),
            );
        }
        rows.truncate(count);
        Ok(rows)
    }

    fn daily_usage_to_copy(&mut self, month: Month) -> Result<Vec<DailyUsageRow>, StoreError> {
        let mut rows = Vec::new();
        for account in self.find_accounts_of_month(DAILY_USAGE_PREFIX, month)? {
            let name = account.escape_ascii().to_string();
            let unreadable = |field: &str| {
                unreadable_row_error(&format!("the usage of {name} in {month} by day {field:?}"))
            };
            let account = String::from_utf8(account).map_err(|_| unreadable(""))?;
            let (of_account, unread) = self.read_daily_usage_of_account(month, &account)?;
            if let Some(field) = unread.first() {
                return Err(unreadable(field));
            }
            rows.extend(of_account);
        }
        Ok(rows)
    }
}

impl Redis {
    /// Reads the rows of one account, sorted by day, route and key, and the fields that can't be
    /// read.
    fn read_daily_usage_of_account(
        &mut self,
        month: Month,
        account: &str,
    ) -> Result<(Vec<DailyUsageRow>, Vec<String>), StoreError> {
        // A scan keeps no other client waiting. It may find a field twice.
        let mut fields: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        self.scan_hash_fields(OPERATION, &daily_usage_key(account, month), |field, calls| {
            fields.insert(field, calls);
        })?;
        let mut calls_by_key: BTreeMap<(u8, String, String), u64> = BTreeMap::new();
        let mut unread = Vec::new();
        for (field, calls) in fields {
            let (name, calls) = (std::str::from_utf8(&field), std::str::from_utf8(&calls));
            let calls = calls.ok().and_then(|calls| calls.parse::<u64>().ok());
            match name.ok().and_then(parse_usage_field).zip(calls) {
                Some(((day, route, key_id), calls)) => {
                    let key = (day, route.to_owned(), key_id.to_owned());
                    let sum = calls_by_key.entry(key).or_default();
                    *sum = sum.saturating_add(calls);
                }
                None => unread.push(String::from_utf8_lossy(&field).into_owned()),
            }
        }
        let row = |((day, route, key_id), calls)| DailyUsageRow {
            account: account.to_owned(),
            day,
            route,
            key_id,
            calls,
        };
        Ok((calls_by_key.into_iter().map(row).collect(), unread))
    }

    /// Stages the usage of another store.
    pub(super) fn stage_daily_usage(
        &mut self,
        staging: &mut Staging,
        contents: &StoreContents,
    ) -> Result<(), StoreError> {
        for (month, rows) in &contents.daily_usage {
            // The rows of one account follow each other.
            let mut staged_key = (None, String::new());
            for chunk in rows.chunks(CHUNK_ROWS) {
                let mut write = redis::pipe();
                for DailyUsageRow { account, day, route, key_id, calls } in chunk {
                    if staged_key.0 != Some(account) {
                        let key = daily_usage_key(account, *month);
                        let ttl = Some(DAILY_USAGE_TTL_SECONDS);
                        staged_key =
                            (Some(account), staging.add_move(&key, OnExistingKey::MergeHash, ttl));
                    }
                    let field = format!("{day} {route} {COPY_NODE_ID} {key_id}");
                    write.cmd("HSET").arg(&staged_key.1).arg(field).arg(calls);
                }
                self.send_staged(staging, write)?;
            }
        }
        Ok(())
    }
}

/// The field of a node's count.
pub(super) fn format_usage_field(count: &UsageCount, node_id: &str) -> String {
    let UsageCount { day, route, key_id, .. } = count;
    format!("{day} {route} {node_id} {key_id}")
}

/// Returns the day, the route and the key of a field; `None` if riskgate did not write it.
fn parse_usage_field(field: &str) -> Option<(u8, &str, &str)> {
    let mut parts = field.splitn(4, ' ');
    let (day, route, _node, key_id) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    Some((day.parse().ok()?, route, key_id))
}
