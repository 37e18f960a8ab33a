//! `riskgate keys list`.

use serde_json::Value;

use crate::cli::failure::CommandFailure;
use crate::cli::output::{format_columns, print_result};
use crate::cli::store_access::{COMMAND_STORE_TIMEOUT, read_ring_rows_of_config};
use crate::config::Config;
use crate::management::{KeyEntry, list_keys, read_declared_keys, read_present_time};
use crate::model::month::format_rfc3339;

/// Lists the keys, of this account or of all, as JSON or as a table.
pub fn run(config: &Config, account: Option<&str>, json: bool) -> Result<(), CommandFailure> {
    let rows = read_ring_rows_of_config(config)?;
    // If the key file is faulty, the keys of the store are listed all the same.
    let (declared, fault) = match read_declared_keys(&config.reloadable) {
        Ok(declared) => (declared, None),
        Err(fault) => (Vec::new(), Some(fault)),
    };
    let mut keys = list_keys(&rows.keys, &rows.accounts, &declared);
    keys.retain(|key| account.is_none_or(|account| key.account == account));
    if let Some(name) = account
        && fault.is_none()
        && keys.is_empty()
        && !rows.accounts.iter().any(|row| row.name == name)
    {
        return Err(CommandFailure::unknown_account(name));
    }
    print_keys(&keys, config, json)?;
    fault.map_or(Ok(()), |fault| Err(fault.into()))
}

fn print_keys(keys: &[KeyEntry], config: &Config, json: bool) -> Result<(), CommandFailure> {
    if json {
        let now = read_present_time(&config.startup.store, COMMAND_STORE_TIMEOUT);
        let objects: Vec<Value> = keys.iter().map(|key| key.to_json(now)).collect();
        return print_result(format!("{}\n", Value::Array(objects)));
    }
    let header = ["ID", "ACCOUNT", "PLAN", "LABEL", "ORIGINS", "CREATED", "EXPIRES", "REVOKED"];
    print_result(format_columns(&header, &keys.iter().map(format_row).collect::<Vec<_>>()))
}

fn format_row(key: &KeyEntry) -> Vec<String> {
    let time = |time: Option<i64>| time.map_or("-".to_owned(), format_rfc3339);
    vec![
        key.id.clone(),
        key.account.clone(),
        key.plan.clone(),
        key.label.clone().unwrap_or("-".to_owned()),
        match (key.is_origin_restricted, key.origins.is_empty()) {
            (false, _) => "-".to_owned(),
            (true, true) => "none".to_owned(),
            (true, false) => key.origins.join(" "),
        },
        key.created_at_text().unwrap_or("-".to_owned()),
        time(key.expires_at),
        time(key.revoked_at),
    ]
}
