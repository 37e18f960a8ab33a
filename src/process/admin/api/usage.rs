//! The calls of accounts: by month, and by day, route and key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::keys::choose_visible_account;
use super::request::{ApiError, ApiRequest, invalid_cursor};
use super::{AdminApi, CallsByAccount};
use crate::management::find_month_to_show;
use crate::model::month::Month;
use crate::process::admin::access::Access;
use crate::store::{DailyUsageCursor, DailyUsageRow, StoreError};
use crate::support::lock::lock;

/// How long the admin API reuses the calls of all accounts that it read from the store.
const MAX_USAGE_AGE: Duration = Duration::from_secs(1);
/// The most rows that riskgate asks the store for, if a request has a filter.
const MAX_SCANNED_ROWS: usize = 20_000;

impl AdminApi {
    /// Returns the calls of all accounts in this month. Reads them from the store if the last read
    /// is older than [`MAX_USAGE_AGE`].
    pub(super) fn read_calls_by_account(&self) -> Result<CallsByAccount, ApiError> {
        let mut known = lock(&self.calls_by_account);
        if let Some((read_at, calls)) = known.as_ref()
            && read_at.elapsed() < MAX_USAGE_AGE
        {
            return Ok(Arc::clone(calls));
        }
        let rows = self.read_from_store(|store| {
            let month = find_month_to_show(store)?;
            store.read_usage(month, None)
        })?;
        let calls = rows.into_iter().map(|row| (row.account, row.spent));
        let calls = Arc::new(calls.collect::<HashMap<String, u64>>());
        *known = Some((Instant::now(), Arc::clone(&calls)));
        Ok(calls)
    }

    /// Lists the calls of a month by account, day, route and key.
    pub(super) fn list_usage(
        &self,
        request: &ApiRequest,
        access: &Access,
    ) -> Result<Value, ApiError> {
        let page = request.parse_page()?;
        let account = choose_visible_account(access, request.nonempty_parameter("account"))?;
        let asked = request.nonempty_parameter("month").map(|text| {
            let expected = "a month such as 2026-11";
            Month::parse(text).ok_or_else(|| ApiError::unexpected("month", expected, text))
        });
        let asked = asked.transpose()?;
        let (key_id, route) =
            (request.nonempty_parameter("key_id"), request.nonempty_parameter("route"));
        let is_match = |row: &&DailyUsageRow| {
            key_id.is_none_or(|key_id| row.key_id == key_id)
                && route.is_none_or(|route| row.route == route)
        };
        let mut next = page.cursor.as_deref().map(parse_cursor).transpose()?;
        // One row more than the page takes shows whether another page follows. All rows come from
        // one read, because a server reads all rows of an account each time.
        let is_filtered = key_id.is_some() || route.is_some();
        let max_rows = if is_filtered { MAX_SCANNED_ROWS } else { page.limit + 1 };
        let (month, rows) = self.read_from_store(|store| {
            let month = asked.map_or_else(|| find_month_to_show(store), Ok)?;
            let rows = store.read_daily_usage(month, account, next.as_ref(), max_rows)?;
            Ok::<_, StoreError>((month, rows))
        })?;
        let mut has_more = rows.len() == max_rows;
        let mut items: Vec<Value> = Vec::new();
        for row in &rows {
            if items.len() == page.limit {
                has_more = true;
                break;
            }
            next = Some(row.cursor());
            items.extend(Some(row).filter(is_match).map(|row| row.to_json(month)));
        }
        let next_cursor = next.filter(|_| has_more).map(|cursor| format_cursor(&cursor));
        Ok(json!({ "month": month.to_string(), "items": items, "next_cursor": next_cursor }))
    }
}

/// Formats a cursor. The name of the account stands last, so that this name may contain spaces.
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
