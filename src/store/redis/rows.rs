//! The text form of keys and accounts on a server.
//!
//! A key is `IMPORT EXPIRY REVOKED DIGEST JSON`. The fields that scripts need come first, so that
//! scripts need not parse JSON, which Lua would not write back unchanged. An account is `IMPORT
//! LIMIT PLAN`, the plan in JSON. `IMPORT` is the id of the import that added the row. An unset
//! field is `-`.

use serde::Deserialize;
use serde_json::json;

use crate::model::monthly_limit::MonthlyLimit;
use crate::store::rows::{AccountRow, KeyRow};

/// The fields of a key that never change.
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
    let (expires, revoked) = (format_time(key.expires_at), format_time(key.revoked_at));
    format!("{expires} {revoked} {} {stored}", hex::encode(key.digest))
}

/// Returns `None` if riskgate did not write the text.
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
        expires_at: parse_time(expires_at)?,
        revoked_at: parse_time(revoked_at)?,
    })
}

/// The text of an account's row without the leading import id.
pub(super) fn format_account(account: &AccountRow) -> String {
    format!("{} {}", format_limit(account.limit), json!(account.plan))
}

/// Returns `None` if riskgate did not write the text.
pub(super) fn parse_account(name: &str, text: &str) -> Option<AccountRow> {
    let (limit, plan) = text.split_once(' ')?;
    let limit = match limit {
        "-" => None,
        "unlimited" => Some(MonthlyLimit::Unlimited),
        calls => Some(MonthlyLimit::Calls(calls.parse().ok()?)),
    };
    Some(AccountRow { name: name.to_owned(), plan: serde_json::from_str(plan).ok()?, limit })
}

pub(super) fn format_limit(limit: Option<MonthlyLimit>) -> String {
    match limit {
        Some(MonthlyLimit::Calls(calls)) => calls.to_string(),
        Some(MonthlyLimit::Unlimited) => "unlimited".to_owned(),
        None => "-".to_owned(),
    }
}

/// The plan in JSON, or an empty text, with which a script keeps the present plan.
pub(super) fn format_plan(plan: Option<&str>) -> String {
    plan.map_or(String::new(), |plan| json!(plan).to_string())
}

fn format_time(time: Option<i64>) -> String {
    time.map_or("-".to_owned(), |time| time.to_string())
}

/// `Some(None)` for an unset time; `None` if the text is no time.
fn parse_time(text: &str) -> Option<Option<i64>> {
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
