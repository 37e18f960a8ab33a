//! The text form of keys and accounts on a server.
//!
//! A key is `IMPORT EXPIRY REVOKED DIGEST JSON`. The fields that scripts need come before the JSON,
//! because Lua would not write JSON back unchanged. An account is `IMPORT LIMIT PLAN`, with the
//! plan in JSON. `IMPORT` is the id of the import that added the row. A field without a value is
//! `-`; a plan without a value is `null`.

use serde::Deserialize;
use serde_json::json;

use crate::model::monthly_limit::MonthlyLimit;
use crate::store::rows::{AccountRow, KeyRow};

/// The JSON in a key's row: the fields that never change.
#[derive(Deserialize)]
struct StoredKeyJson {
    account: String,
    label: Option<String>,
    origins: Vec<String>,
    require_origin: bool,
    created_at: i64,
}

/// The text of a key's row without the leading import id.
pub(super) fn format_key(key: &KeyRow) -> String {
    let stored = json!({
        "account": key.account, "label": key.label, "origins": key.origins,
        "require_origin": key.require_origin, "created_at": key.created_at,
    });
    let (expires, revoked) =
        (format_time_or_dash(key.expires_at), format_time_or_dash(key.revoked_at));
    format!("{expires} {revoked} {} {stored}", hex::encode(key.digest))
}

/// Parses what [`format_key`] wrote. Returns `None` if riskgate did not write the text.
pub(super) fn parse_key(id: &str, text: &str) -> Option<KeyRow> {
    let mut fields = text.splitn(4, ' ');
    let (expires_at, revoked_at) = (fields.next()?, fields.next()?);
    let (hex, json) = (fields.next()?, fields.next()?);
    let stored: StoredKeyJson = serde_json::from_str(json).ok()?;
    Some(KeyRow {
        id: id.to_owned(),
        account: stored.account,
        label: stored.label,
        digest: parse_digest(hex)?,
        origins: stored.origins,
        require_origin: stored.require_origin,
        created_at: stored.created_at,
        expires_at: parse_time_or_dash(expires_at)?,
        revoked_at: parse_time_or_dash(revoked_at)?,
    })
}

/// The text of an account's row without the leading import id.
pub(super) fn format_account(account: &AccountRow) -> String {
    format!("{} {}", format_own_limit(account.own_limit), json!(account.plan))
}

/// Parses what [`format_account`] wrote. Returns `None` if riskgate did not write the text.
pub(super) fn parse_account(name: &str, text: &str) -> Option<AccountRow> {
    let (limit, plan) = text.split_once(' ')?;
    let limit = match limit {
        "-" => None,
        "unlimited" => Some(MonthlyLimit::Unlimited),
        calls => Some(MonthlyLimit::Calls(calls.parse().ok()?)),
    };
    Some(AccountRow {
        name: name.to_owned(),
        plan: serde_json::from_str(plan).ok()?,
        own_limit: limit,
    })
}

pub(super) fn format_own_limit(limit: Option<MonthlyLimit>) -> String {
    match limit {
        Some(MonthlyLimit::Calls(calls)) => calls.to_string(),
        Some(MonthlyLimit::Unlimited) => "unlimited".to_owned(),
        None => "-".to_owned(),
    }
}

/// The plan in JSON. `None` becomes an empty text, which tells a script to keep the present plan.
pub(super) fn format_plan_or_empty(plan: Option<&str>) -> String {
    plan.map_or(String::new(), |plan| json!(plan).to_string())
}

fn format_time_or_dash(time: Option<i64>) -> String {
    time.map_or("-".to_owned(), |time| time.to_string())
}

/// Returns `Some(None)` for an unset time (`-`), and `None` if the text is not a time.
fn parse_time_or_dash(text: &str) -> Option<Option<i64>> {
    match text {
        "-" => Some(None),
        time => time.parse().ok().map(Some),
    }
}

pub(super) fn parse_digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(digest)
}
