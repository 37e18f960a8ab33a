//! Lists accounts by name or by use of their month, and sets plans and limits.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::keys::choose_visible_account;
use super::request::{ApiError, ApiRequest, ChangeAfterStoreFailure, json_response, list_to_json};
use super::ring_index::RingIndex;
use super::{AdminApi, Answer, AuthorizedChange};
use crate::management::{
    AccountEntry, ManagementFault, fault_of_limit, limit_to_json, parse_limit_change,
    quote_sent_name, set_account,
};
use crate::process::admin::access::Access;
use crate::store::{LimitChange, MonthlyLimit};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountBody {
    plan: Option<String>,
    limit: Option<Value>,
}

/// The place of an account in a list: how much of its limit it has used, in thousandths, the most
/// first, and its name. In a list by name, all accounts count as unused.
type AccountPlace = (Reverse<u64>, String);

fn format_place((Reverse(used), name): &AccountPlace) -> String {
    format!("{used} {name}")
}

fn parse_place(cursor: &str) -> Option<AccountPlace> {
    let (used, name) = cursor.split_once(' ')?;
    Some((Reverse(used.parse().ok()?), name.to_owned()))
}

impl AdminApi {
    pub(super) fn list_accounts(&self, request: &ApiRequest) -> Result<Value, ApiError> {
        let page = request.parse_page()?;
        let search = request.nonempty_parameter("search").map(str::to_lowercase);
        let plan = request.nonempty_parameter("plan");
        let now = self.state.ledger.believed_now();
        let (ring_index, calls) = (self.ring_index()?, self.read_calls_by_account()?);
        let is_by_use = match request.nonempty_parameter("sort") {
            None | Some("name") => false,
            Some("use") => true,
            Some(found) => {
                return Err(ApiError::unexpected("sort", "name or use", found));
            }
        };
        let place_of = |account: &AccountEntry| {
            let used = if is_by_use { used_thousandths(account, &calls) } else { None };
            (Reverse(used.unwrap_or(0)), account.name.clone())
        };
        let mut matches: Vec<(AccountPlace, &AccountEntry)> = ring_index
            .accounts
            .iter()
            .filter(|account| plan.is_none_or(|plan| account.plan == plan))
            .filter(|account| {
                search.as_ref().is_none_or(|text| account.name.to_lowercase().contains(text))
            })
            .map(|account| (place_of(account), account))
            .collect();
        matches.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (shown, next_cursor) = page.select_from(&matches, parse_place, format_place)?;
        let to_json = |(_, it): &(_, &AccountEntry)| account_to_json(it, &ring_index, &calls, now);
        Ok(list_to_json(shown.iter().map(to_json).collect(), next_cursor, Some(matches.len())))
    }

    pub(super) fn show_account(&self, access: &Access, name: &str) -> Result<Value, ApiError> {
        choose_visible_account(access, Some(name))?;
        let ring_index = self.ring_index()?;
        match ring_index.find_account(name) {
            Some(account) => {
                let now = self.state.ledger.believed_now();
                let calls = self.read_calls_by_account()?;
                Ok(account_to_json(account, &ring_index, &calls, now))
            }
            None => {
                let found = quote_sent_name(name);
                let detail = format!("expected the name of an account, but found {found}");
                Err(ApiError::not_found("There is no such account.", Some(detail)))
            }
        }
    }

    pub(super) fn set_account(
        &self,
        request: &ApiRequest,
        authorized: &AuthorizedChange<'_>,
        name: &str,
    ) -> Answer {
        let body: AccountBody = request.parse_body()?;
        let limit = body.limit.map_or(Ok(None), read_limit)?;
        let config = self.config();
        self.check_served_place()?;
        let calls = self
            .read_calls_by_account()
            .map_err(|error| error.with_change(ChangeAfterStoreFailure::NotMade))?;
        // A failure after the change would say that nothing was changed.
        let ring_index = self.ring_index()?;
        let account = self.change_store_and_wait(|store| {
            set_account(store, &config, &authorized.author, name, body.plan.as_deref(), limit)
        })?;
        let now = self.state.ledger.believed_now();
        Ok(json_response(200, &account_to_json(&account, &ring_index, &calls, now)))
    }

    pub(super) fn plans_to_json(&self) -> Value {
        let config = self.config();
        let items: Vec<Value> = config
            .plans
            .iter()
            .map(|(name, limit)| json!({ "name": name, "limit": limit_to_json(*limit) }))
            .collect();
        json!({ "items": items })
    }
}

/// Reads a limit; `None` for `null`. A text with a number is no number.
fn read_limit(limit: Value) -> Result<Option<LimitChange>, ManagementFault> {
    match limit {
        Value::Null => Ok(None),
        Value::String(text) if text.parse::<f64>().is_err() => {
            parse_limit_change(&text, format!("{text:?}")).map(Some)
        }
        Value::Number(number) => {
            let text = match number.as_f64().filter(|_| number.is_f64()) {
                // JSON has one kind of numbers: 1e3 is a whole one. A fraction that is too small
                // for the parser is 0.0, and does not mean 0.
                Some(whole) if whole.fract() == 0.0 && (1.0..1e20).contains(&whole) => {
                    format!("{whole:.0}")
                }
                _ => number.to_string(),
            };
            parse_limit_change(&text, text.clone()).map(Some)
        }
        found => Err(fault_of_limit(found.to_string())),
    }
}

fn account_to_json(
    account: &AccountEntry,
    ring_index: &RingIndex,
    calls: &HashMap<String, u64>,
    unix_now: i64,
) -> Value {
    let used = used_thousandths(account, calls).map(|used| used as f64 / 10.0);
    let mut object = account.to_json();
    object["month_count"] = json!(calls.get(&account.name).copied().unwrap_or(0));
    object["used_percent"] = json!(used);
    object["keys"] = json!(ring_index.count_active_keys(&account.name, unix_now));
    object
}

/// Computes how much of its monthly limit an account has used, in thousandths. If the limit is 0,
/// returns 1,000. Returns `None` if the account is unlimited, or if its limit is not known.
fn used_thousandths(account: &AccountEntry, calls: &HashMap<String, u64>) -> Option<u64> {
    let calls = calls.get(&account.name).copied().unwrap_or(0);
    match account.limit {
        Some(MonthlyLimit::Calls(0)) => Some(1_000),
        Some(MonthlyLimit::Calls(limit)) => {
            u64::try_from(u128::from(calls) * 1_000 / u128::from(limit)).ok()
        }
        Some(MonthlyLimit::Unlimited) | None => None,
    }
}
