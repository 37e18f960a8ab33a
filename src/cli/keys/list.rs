//! `riskgate keys list`.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::declared::read_declared_keys;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{format_columns, print_result};
use crate::cli::store_access::{open_store, read_ring_rows};
use crate::config::Config;
use crate::keys::{DEFAULT_PLAN, DeclaredKey, MergedKey, merge_keys};
use crate::model::month::format_rfc3339;
use crate::store::KeyRow;

/// Lists the keys, of this account or of all, as JSON or as a table.
pub fn run(config: &Config, account: Option<&str>, json: bool) -> Result<(), CommandFailure> {
    let rows = read_ring_rows(&mut open_store(config)?)?;
    let declared = read_declared_keys(config)?;
    let mut plans: HashMap<String, String> =
        rows.accounts.iter().filter_map(|a| Some((a.name.clone(), a.plan.clone()?))).collect();
    for DeclaredKey { key, plan } in &declared {
        if let Some(plan) = plan {
            plans.entry(key.account.clone()).or_insert_with(|| plan.clone());
        }
    }
    // A key that is in the store and in the key file has the stricter settings of both.
    let mut keys = merge_keys(&rows.keys, &declared);
    keys.retain(|key| account.is_none_or(|account| key.row.account == account));
    keys.sort_by(|a, b| (a.row.created_at, &a.row.id).cmp(&(b.row.created_at, &b.row.id)));
    let origins = |key: &MergedKey<'_>| -> Vec<String> {
        match &key.fault {
            None => key.origins.iter().map(ToString::to_string).collect(),
            Some(_) => key.row.origins.clone(),
        }
    };
    let plan_of =
        |key: &KeyRow| plans.get(&key.account).map_or(DEFAULT_PLAN, String::as_str).to_owned();
    if json {
        let object = |merged: &MergedKey<'_>| {
            let key = &merged.row;
            json!({
                "id": key.id, "account": key.account, "plan": plan_of(key), "label": key.label,
                "origins": origins(merged), "restricted": merged.is_origin_restricted,
                "require_origin": key.require_origin, "created_at": format_rfc3339(key.created_at),
                "expires_at": key.expires_at.map(format_rfc3339),
                "revoked_at": key.revoked_at.map(format_rfc3339),
            })
        };
        return print_result(format!("{}\n", Value::Array(keys.iter().map(object).collect())));
    }
    let time = |time: Option<i64>| time.map_or("-".to_owned(), format_rfc3339);
    let rows: Vec<Vec<String>> = keys
        .iter()
        .map(|merged| {
            let (key, origins) = (&merged.row, origins(merged));
            vec![
                key.id.clone(),
                key.account.clone(),
                plan_of(key),
                key.label.clone().unwrap_or("-".to_owned()),
                match (merged.is_origin_restricted, origins.is_empty()) {
                    (false, _) => "-".to_owned(),
                    (true, true) => "none".to_owned(),
                    (true, false) => origins.join(" "),
                },
                format_rfc3339(key.created_at),
                time(key.expires_at),
                time(key.revoked_at),
            ]
        })
        .collect();
    let header = ["ID", "ACCOUNT", "PLAN", "LABEL", "ORIGINS", "CREATED", "EXPIRES", "REVOKED"];
    print_result(format_columns(&header, &rows))
}
