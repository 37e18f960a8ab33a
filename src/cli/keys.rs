//! `riskgate keys`: create, list, rotate, revoke, import.

mod declared;
mod expiry;
mod list;

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{print_message, print_result_of_change, stdout_error, write_secret};
use super::store_access::{
    check_account_name, check_plan, open_store, read_ring_rows, read_store_clock,
};
use crate::config::{Config, parse_duration};
use crate::keys::{DEFAULT_PLAN, DeclaredKey, Token, read_key_file};
use crate::model::month::format_rfc3339;
use crate::model::origin::OriginPattern;
use crate::quota::unix_now;
use crate::store::{KeyRow, Store, StoreError};
use declared::read_declared_keys;
use expiry::Expiry;

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Create a key, and print it once, alone on stdout.
    Create {
        #[command(flatten)]
        config: ConfigArgs,
        /// The account whose quota the key uses; created if it does not exist.
        #[arg(long, value_name = "NAME")]
        account: String,
        /// The plan of a new account. `riskgate accounts set` changes the plan of an account.
        #[arg(long)]
        plan: Option<String>,
        /// A label for people.
        #[arg(long)]
        label: Option<String>,
        /// An origin that may use the key; can be given several times.
        #[arg(long = "origin", value_name = "ORIGIN")]
        origins: Vec<String>,
        /// Refuse requests without an Origin header.
        #[arg(long)]
        require_origin: bool,
        /// When the key expires: 90d, 12h, or a time such as 2027-01-01T00:00:00Z.
        #[arg(long, value_name = "WHEN")]
        expires: Option<String>,
        /// Print a JSON object with id and key instead.
        #[arg(long)]
        json: bool,
    },
    /// List keys, without the keys themselves.
    List {
        #[command(flatten)]
        config: ConfigArgs,
        /// Only the keys of this account.
        #[arg(long, value_name = "NAME")]
        account: Option<String>,
        /// Print a JSON array of objects.
        #[arg(long)]
        json: bool,
    },
    /// Replace a key: create one with the same settings, and let the old one expire after an
    /// overlap.
    Rotate {
        #[command(flatten)]
        config: ConfigArgs,
        /// The key's id.
        id: String,
        /// How long the old key still works.
        #[arg(long, default_value = "7d", value_name = "TIME")]
        overlap: String,
        /// When the new key expires; by default after as long a time as the old one had.
        #[arg(long, value_name = "WHEN")]
        expires: Option<String>,
        /// Print a JSON object with id and key instead.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key at once and permanently.
    Revoke {
        #[command(flatten)]
        config: ConfigArgs,
        /// The key's id.
        id: String,
        /// Print a JSON object instead.
        #[arg(long)]
        json: bool,
    },
    /// Import existing keys from a key file, all or none.
    Import {
        #[command(flatten)]
        config: ConfigArgs,
        /// The key file.
        file: PathBuf,
        /// Print a JSON array of ids instead.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: KeysCommand) -> Result<(), CommandFailure> {
    match command {
        KeysCommand::Create {
            config,
            account,
            plan,
            label,
            origins,
            require_origin,
            expires,
            json,
        } => {
            let config = config.read_config()?;
            check_account_name("--account", &account)?;
            check_plan(&config, plan.as_deref())?;
            let expires = expires.as_deref().map(Expiry::parse).transpose()?;
            for origin in &origins {
                OriginPattern::parse(origin).map_err(|error| {
                    CommandFailure::usage(format!("--origin: {error}, but found {origin:?}"))
                })?;
            }
            let wanted = KeyRow {
                id: String::new(),
                account,
                label,
                digest: [0; 32],
                origins,
                require_origin,
                created_at: 0,
                expires_at: None,
                revoked_at: None,
            };
            create(&config, wanted, plan, expires, json)
        }
        KeysCommand::List { config, account, json } => {
            list::run(&config.read_config()?, account.as_deref(), json)
        }
        KeysCommand::Rotate { config, id, overlap, expires, json } => {
            rotate(&config.read_config()?, &id, &overlap, expires.as_deref(), json)
        }
        KeysCommand::Revoke { config, id, json } => revoke(&config.read_config()?, &id, json),
        KeysCommand::Import { config, file, json } => import(&config.read_config()?, &file, json),
    }
}

fn create(
    config: &Config,
    key: KeyRow,
    plan: Option<String>,
    expires: Option<Expiry>,
    json: bool,
) -> Result<(), CommandFailure> {
    let token =
        Token::generate(&config.key_prefix).map_err(|e| CommandFailure::failed(e.to_string()))?;
    let mut store = open_store(config)?;
    if let Some(plan) = &plan {
        check_plan_of_account(&mut store, &key.account, plan)?;
    }
    let created_at = read_store_clock(&mut store)?;
    let expires_at = expires.map(|when| when.to_unix_seconds(created_at));
    let key = KeyRow { id: new_key_id()?, digest: token.sha256(), created_at, expires_at, ..key };
    let added = store.add_keys(&[(key.clone(), plan)]);
    let undo = |store: &mut Store| store.expire_or_revoke_key(&key.id, None, Some(unix_now()));
    print_key_or_undo(&mut store, added, &key, &token, json, undo)
}

/// Refuses a plan that is not the plan of the account, because a new key must not change the limit
/// of the keys that the account has already.
fn check_plan_of_account(
    store: &mut Store,
    account: &str,
    plan: &str,
) -> Result<(), CommandFailure> {
    let rows = read_ring_rows(store)?;
    let Some(row) = rows.accounts.iter().find(|row| row.name == account) else { return Ok(()) };
    let present = row.plan.as_deref().unwrap_or(DEFAULT_PLAN);
    match present == plan {
        true => Ok(()),
        false => Err(CommandFailure::failed(format!(
            "--plan: expected {present}, the plan of the account {account}, but found {plan}; to \
             change it: riskgate accounts set {account} --plan {plan}"
        ))),
    }
}

/// Prints a new key. If that fails, calls `undo`, because nobody knows the key then.
fn print_key_or_undo(
    store: &mut Store,
    added: Result<(), StoreError>,
    key: &KeyRow,
    token: &Token,
    json: bool,
    undo: impl FnOnce(&mut Store) -> Result<(), StoreError>,
) -> Result<(), CommandFailure> {
    let KeyRow { id, account, .. } = key;
    let failure = match added {
        Ok(()) => {
            let text = match json {
                true => {
                    json!({ "id": id, "account": account, "key": token.expose_text() }).to_string()
                }
                false => token.expose_text().to_owned(),
            };
            let Err(error) = write_secret(format!("{text}\n").as_bytes()) else {
                if !json {
                    print_message(format!(
                        "key {id} of account {account}; it is shown only this once"
                    ));
                }
                return Ok(());
            };
            CommandFailure::failed(stdout_error(&error))
        }
        // The store did not answer, so nobody knows whether the store has the key.
        Err(error @ StoreError::Unavailable { .. }) => error.into(),
        Err(error) => return Err(error.into()),
    };
    let outcome = match undo(store) {
        Ok(()) => format!("key {id} could not be shown and is revoked"),
        Err(error) => format!(
            "key {id} could not be shown; if it is in the store, revoke it, since this failed: \
             {error}"
        ),
    };
    Err(CommandFailure::failed(format!("{}; {outcome}", failure.message_lines.join("; "))))
}

fn rotate(
    config: &Config,
    id: &str,
    overlap: &str,
    expires: Option<&str>,
    json: bool,
) -> Result<(), CommandFailure> {
    let overlap = parse_duration(overlap).ok_or_else(|| {
        CommandFailure::usage(format!(
            "--overlap: expected a duration such as 7d, but found {overlap:?}"
        ))
    })?;
    let expires = expires.map(Expiry::parse).transpose()?;
    let mut store = open_store(config)?;
    let Some(old) = find_stored_key(config, &mut store, id)? else {
        return Err(CommandFailure::failed(format!(
            "expected the id of a key in the store, but found {id:?}"
        )));
    };
    let now = read_store_clock(&mut store)?;
    let same_term = old.expires_at.map(|at| now.saturating_add(at - old.created_at));
    let expires_at = expires.map(|when| when.to_unix_seconds(now)).or(same_term);
    let token =
        Token::generate(&config.key_prefix).map_err(|e| CommandFailure::failed(e.to_string()))?;
    let (before, digest) = (old.expires_at, token.sha256());
    let new = KeyRow {
        id: new_key_id()?,
        digest,
        created_at: now,
        expires_at,
        revoked_at: None,
        ..old.clone()
    };
    let old_key_end = now.saturating_add(i64::try_from(overlap.as_secs()).unwrap_or(i64::MAX));
    let old_key_end = before.map_or(old_key_end, |at| at.min(old_key_end));
    let old_id = &old.id;
    let rotated = store.rotate_key(old_id, &new, old_key_end, now);
    let undo = |store: &mut Store| store.undo_rotation(old_id, &new.id, old_key_end, before, now);
    print_key_or_undo(&mut store, rotated, &new, &token, json, undo)?;
    print_message(format!("key {id} works until {}", format_rfc3339(old_key_end)));
    Ok(())
}

/// Finds the store's row of a key by its id, or by the digest that the key file has for this id.
fn find_stored_key(
    config: &Config,
    store: &mut Store,
    id: &str,
) -> Result<Option<KeyRow>, CommandFailure> {
    let rows = read_ring_rows(store)?.keys;
    let declared = read_declared_keys(config)?.into_iter().find(|declared| declared.key.id == id);
    let digest = declared.map(|declared| declared.key.digest);
    let at = rows.iter().position(|key| key.id == id);
    let at = at.or_else(|| rows.iter().position(|key| Some(key.digest) == digest));
    Ok(at.and_then(|at| rows.into_iter().nth(at)))
}

fn revoke(config: &Config, id: &str, json: bool) -> Result<(), CommandFailure> {
    let mut store = open_store(config)?;
    let now = unix_now();
    match store.expire_or_revoke_key(id, None, Some(now)) {
        Err(StoreError::Conflict(_)) => {
            // A key of the key file is revoked by a tombstone in the store.
            let found =
                read_declared_keys(config)?.into_iter().find(|declared| declared.key.id == id);
            let Some(found) = found else {
                return Err(CommandFailure::failed(format!(
                    "expected the id of a key, but found {id:?}"
                )));
            };
            match find_stored_key(config, &mut store, id)? {
                // The store has the same key under another id.
                Some(stored) => store.expire_or_revoke_key(&stored.id, None, Some(now))?,
                None => {
                    let tombstone = KeyRow { revoked_at: Some(now), ..found.key };
                    store.add_keys(&[(tombstone, None)])?;
                }
            }
        }
        done => done?,
    }
    let done = format!("key {id} is revoked");
    match json {
        true => print_result_of_change(
            &done,
            format!("{}\n", json!({ "id": id, "revoked_at": format_rfc3339(now) })),
        ),
        false => {
            print_message(done);
            Ok(())
        }
    }
}

fn import(config: &Config, file: &std::path::Path, json: bool) -> Result<(), CommandFailure> {
    let keys = read_key_file(file, &Config::env_var).map_err(|faults| {
        CommandFailure::config(faults.iter().map(ToString::to_string).collect())
    })?;
    for key in &keys {
        check_plan(config, key.plan.as_deref())?;
    }
    let now = unix_now();
    let rows: Vec<(KeyRow, Option<String>)> = keys
        .into_iter()
        .map(|DeclaredKey { key, plan }| {
            let created_at = if key.created_at == 0 { now } else { key.created_at };
            (KeyRow { created_at, ..key }, plan)
        })
        .collect();
    open_store(config)?.add_keys(&rows)?;
    let ids: Vec<&str> = rows.iter().map(|(key, _)| key.id.as_str()).collect();
    let done = format!("{} keys imported", ids.len());
    match json {
        true => print_result_of_change(&done, format!("{}\n", json!(ids))),
        false => {
            print_message(done);
            Ok(())
        }
    }
}

/// Creates an id of 64 random bits: short enough to say aloud, long enough to be unique.
fn new_key_id() -> Result<String, CommandFailure> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| CommandFailure::failed(error.to_string()))?;
    Ok(format!("key_{:016x}", u64::from_be_bytes(bytes)))
}
