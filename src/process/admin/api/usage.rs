//! The usage of accounts: their month, and by day, route and key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Response;
use serde_json::{Value, json};

use super::keys::{invalid_cursor, visible_account};
use super::request::{ApiError, ApiRequest, json_response};
use super::{AdminApi, lock};
use crate::management::month_to_show;
use crate::model::month::Month;
use crate::process::admin::access::Access;
use crate::store::{DailyUsageCursor, DailyUsageRow};

/// For how long the calls of all accounts are kept. Nodes publish them once a second.
const MAX_USAGE_AGE: Duration = Duration::from_secs(1);
/// The most rows that are read for a page, if a filter leaves rows out.
const MAX_SCANNED_ROWS: usize = 20_000;

/// The calls of the month, as they were last read.
#[derive(Default)]
pub(super) struct UsageCache(Mutex<Option<(Instant, Arc<MonthUsage>)>>);

/// The calls of all accounts in a month.
pub(super) struct MonthUsage {
    pub(super) calls_by_account: HashMap<String, u64>,
}

impl AdminApi {
    /// The calls of all accounts in this month, at most a second old.
    pub(super) fn month_usage(&self) -> Result<Arc<MonthUsage>, ApiError> {
        let mut known = lock(&self.usage.0);
        if let Some((read_at, usage)) = known.as_ref()
            && read_at.elapsed() < MAX_USAGE_AGE
        {
            return Ok(Arc::clone(usage));
        }
        let rows = self.with_read_store(|store| {
            let month = month_to_show(store)?;
            store.read_usage(month, None)
        })?;
        let calls = rows.into_iter().map(|row| (row.account, row.spent));
        let usage = Arc::new(MonthUsage { calls_by_account: calls.collect() });
        *known = Some((Instant::now(), Arc::clone(&usage)));
        Ok(usage)
    }

    /// Lists the calls of a month by account, day, route and key.
    pub(super) fn list_usage(
        &self,
        request: &ApiRequest,
        access: &Access,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        request.check_parameters(&["month", "account", "key_id", "route", "limit", "cursor"])?;
        let page = request.page()?;
        let account = visible_account(access, request.filter("account"))?;
        let asked = request.filter("month").map(|text| {
            let expected = "month: expected a month such as 2026-11";
            Month::parse(text)
                .ok_or_else(|| ApiError::invalid(format!("{expected}, but found {text:?}")))
        });
        let asked = asked.transpose()?;
        let (key_id, route) = (request.filter("key_id"), request.filter("route"));
        let is_match = |row: &&DailyUsageRow| {
            key_id.is_none_or(|key_id| row.key_id == key_id)
                && route.is_none_or(|route| row.route == route)
        };
        let mut after = page.cursor.as_deref().map(parse_cursor).transpose()?;
        let (month, items, next) = self.with_read_store(|store| {
            let month = asked.map_or_else(|| month_to_show(store), Ok)?;
            let (mut items, mut scanned) = (Vec::new(), 0);
            loop {
                let rows = store.read_daily_usage(month, account, after.as_ref(), page.limit)?;
                let is_last = rows.len() < page.limit;
                scanned += rows.len();
                for row in &rows {
                    if items.len() == page.limit {
                        return Ok::<_, crate::store::StoreError>((month, items, after));
                    }
                    after = Some(row.cursor());
                    items.extend(Some(row).filter(is_match).map(|row| row.to_json(month)));
                }
                if is_last {
                    return Ok((month, items, None));
                }
                if items.len() == page.limit || scanned >= MAX_SCANNED_ROWS {
                    return Ok((month, items, after));
                }
            }
        })?;
        let next_cursor = next.map(|cursor| format_cursor(&cursor));
        let items: Vec<Value> = items;
        let list = json!({
            "month": month.to_string(), "items": items, "next_cursor": next_cursor,
        });
        Ok(json_response(200, &list))
    }
}

/// Names of accounts and keys have no spaces.
fn format_cursor((account, day, route, key_id): &DailyUsageCursor) -> String {
    format!("{day} {route} {key_id} {account}")
}

fn parse_cursor(cursor: &str) -> Result<DailyUsageCursor, ApiError> {
    let mut parts = cursor.splitn(4, ' ');
    let mut next = || parts.next();
    let parsed = (|| {
        let (day, route, key_id, account) = (next()?, next()?, next()?, next()?);
        Some((account.to_owned(), day.parse().ok()?, route.to_owned(), key_id.to_owned()))
    })();
    parsed.ok_or_else(|| invalid_cursor(cursor))
}
