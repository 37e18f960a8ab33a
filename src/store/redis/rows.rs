//! Rows of keys and accounts, as texts on a server.
//!
//! A key is `BORN EXPIRY REVOKED DIGEST JSON`: what scripts look at stands in front, so that they
//! need not read JSON, which Lua would not write back as it was. An account is `BORN LIMIT PLAN`,
//! the plan in JSON. `BORN` names the import that a row came with. What is not set is `-`.

use serde::Deserialize;
use serde_json::json;

use super::reply::hex;
use crate::model::monthly_limit::LimitRow;
use crate::store::rows::{AccountRow, KeyRow};

/// What never changes of a key.
#[derive(Deserialize)]
struct Written {
    account: String,
    label: Option<String>,
    origins: Vec<String>,
    require_origin: bool,
    created_at: i64,
}

/// A key but for where it came from.
pub(super) fn key_text(key: &KeyRow) -> String {
    let written = json!({
        "account": key.account, "label": key.label, "origins": key.origins,
        "require_origin": key.require_origin, "created_at": key.created_at,
    });
    let (expires, revoked) = (or_none(key.expires_at), or_none(key.revoked_at));
    format!("{expires} {revoked} {} {written}", hex(&key.digest))
}

/// None if the text is not one of ours.
pub(super) fn key_row(id: &str, text: &str) -> Option<KeyRow> {
    let mut words = text.splitn(4, ' ');
    let (expires_at, revoked_at) = (words.next()?, words.next()?);
    let (hex, json) = (words.next()?, words.next()?);
    let written: Written = serde_json::from_str(json).ok()?;
    Some(KeyRow {
        id: id.to_owned(),
        account: written.account,
        label: written.label,
        digest: digest(hex)?,
        origins: written.origins,
        require_origin: written.require_origin,
        created_at: written.created_at,
        expires_at: time(expires_at)?,
        revoked_at: time(revoked_at)?,
    })
}

/// An account but for where it came from.
pub(super) fn account_text(account: &AccountRow) -> String {
    format!("{} {}", limit_text(account.limit), json!(account.plan))
}

/// None if the text is not one of ours.
pub(super) fn account_row(name: &str, text: &str) -> Option<AccountRow> {
    let (limit, plan) = text.split_once(' ')?;
    let limit = match limit {
        "-" => None,
        "unlimited" => Some(LimitRow::Unlimited),
        calls => Some(LimitRow::Calls(calls.parse().ok()?)),
    };
    Some(AccountRow { name: name.to_owned(), plan: serde_json::from_str(plan).ok()?, limit })
}

pub(super) fn limit_text(limit: Option<LimitRow>) -> String {
    match limit {
        Some(LimitRow::Calls(calls)) => calls.to_string(),
        Some(LimitRow::Unlimited) => "unlimited".to_owned(),
        None => "-".to_owned(),
    }
}

/// A plan that is given; nothing leaves the one that is there.
pub(super) fn plan_text(plan: Option<&str>) -> String {
    plan.map_or(String::new(), |plan| json!(plan).to_string())
}

fn or_none(time: Option<i64>) -> String {
    time.map_or("-".to_owned(), |time| time.to_string())
}

fn time(text: &str) -> Option<Option<i64>> {
    match text {
        "-" => Some(None),
        time => time.parse().ok().map(Some),
    }
}

pub(super) fn digest(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if pairs.len() != digest.len() || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}
