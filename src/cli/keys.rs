//! `riskgate keys`: creates, lists, rotates, revokes and imports keys.

mod list;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use serde_json::json;

use super::author::find_command_author;
use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{describe_stdout_error, print_message, report_change, write_secret};
use super::store_access::{
    COMMAND_STORE_TIMEOUT, check_no_other_store_is_served, check_served_file_exists,
    is_store_missing, open_existing_store, open_store, warn_about_clock_skew,
};
use crate::config::{Config, hint_for_unopened};
use crate::keys::Token;
use crate::management::{
    DEFAULT_OVERLAP, ImportedKeys, NewKey, check_name_if_undeclared, check_new_key,
    check_not_declared, describe_unknown_id, import_keys, parse_rotation_times, prepare_key,
    prepare_rotation, read_declared_keys, read_present_time, revoke_key,
};
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::month::format_rfc3339;
use crate::store::{KeyRow, Store, StoreError};
use crate::support::counted::CountedNoun;

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
        /// Print a JSON object with id, account and key instead.
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
        #[arg(long, default_value = DEFAULT_OVERLAP, value_name = "TIME")]
        overlap: String,
        /// When the new key expires: 90d, 12h, or a time. By default, the new key gets the lifetime
        /// that the old key had in all, counted from now.
        #[arg(long, value_name = "WHEN")]
        expires: Option<String>,
        /// Print a JSON object with id, account and key instead.
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
            let new = NewKey { account, plan, label, origins, require_origin, expires };
            create_key(&config.read_config()?, &new, json)
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

/// Creates a key, and prints it.
pub(super) fn create_key(config: &Config, new: &NewKey, json: bool) -> Result<(), CommandFailure> {
    // A failed command must not leave a new store behind.
    let expiry = check_new_key(&config.reloadable, new)?;
    if is_store_missing(config) {
        check_name_if_undeclared(&config.reloadable, &new.account)?;
        if let Some(expiry) = expiry {
            let unix_now = read_present_time(&config.startup.store, COMMAND_STORE_TIMEOUT);
            expiry.to_unix_seconds(BelievedTime { unix_now, trust: TimeTrust::Known })?;
        }
    }
    let (mut store, author) = (open_store(config)?, find_command_author());
    let key = prepare_key(&mut store, &config.reloadable, new, None)?;
    warn_about_clock_skew(&mut store)?;
    let added = key.add(&mut store, &author);
    let undo = |store: &mut Store| {
        let revoked_at = Some(store.now().unix_now);
        store.expire_or_revoke_key(&author, &key.row.id, None, revoked_at)
    };
    print_key_or_undo(&mut store, added, &key.row, &key.token, json, undo)
}

/// Prints a new key. Calls `undo` if the key can't be printed, or if the store did not answer:
/// nobody knows the key then.
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
            CommandFailure::failed(describe_stdout_error(&error))
        }
        // The store did not answer, so nobody knows whether the store has the key.
        Err(error @ StoreError::Unavailable { .. }) => error.into(),
        // The error begins with `plan`, which is an option of the command.
        Err(error @ StoreError::OtherPlan { .. }) => {
            return Err(CommandFailure::failed(format!("--{error}")));
        }
        Err(error) => return Err(error.into()),
    };
    let outcome = match undo(store) {
        Ok(()) => format!("key {id} could not be shown and is revoked"),
        // The store does not have the new key. If this is a rotation, the old key is unchanged.
        Err(StoreError::Conflict(_)) => "nothing was changed".to_owned(),
        Err(error) => format!(
            "key {id} could not be shown, so nobody can use it; revoking it: {error}; to be sure, \
             repeat `riskgate keys revoke {id}` once the store answers"
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
    parse_rotation_times(Some(overlap), expires)?;
    check_no_other_store_is_served(config)?;
    check_served_file_exists(config)?;
    if is_store_missing(config) {
        check_not_declared(&config.reloadable, id)?;
        return Err(unknown_id_without_store(config, id));
    }
    let (mut store, author) = (open_existing_store(config)?, find_command_author());
    let prepared =
        prepare_rotation(&mut store, &config.reloadable, id, Some(overlap), expires, None)?;
    warn_about_clock_skew(&mut store)?;
    let rotated = prepared.commit(&mut store, &author);
    let undo = |store: &mut Store| prepared.undo(store, &author);
    print_key_or_undo(
        &mut store,
        rotated,
        &prepared.rotation.new_key,
        &prepared.token,
        json,
        undo,
    )?;
    print_message(format!(
        "key {id} works until {}",
        format_rfc3339(prepared.rotation.old_expires_at)
    ));
    Ok(())
}

/// The failure of an `id` that no key has, while the store does not exist yet.
fn unknown_id_without_store(config: &Config, id: &str) -> CommandFailure {
    let declared_keys = read_declared_keys(&config.reloadable).unwrap_or_default();
    CommandFailure::failed(describe_unknown_id(id, &declared_keys, std::iter::empty()))
}

fn revoke(config: &Config, id: &str, json: bool) -> Result<(), CommandFailure> {
    let is_declared = || {
        read_declared_keys(&config.reloadable).is_ok_and(|all| all.iter().any(|it| it.key.id == id))
    };
    check_no_other_store_is_served(config)?;
    check_served_file_exists(config)?;
    if is_store_missing(config) && !is_declared() {
        // A failed command must not leave a new store behind.
        return Err(unknown_id_without_store(config, id));
    }
    let declared_keys = || read_declared_keys(&config.reloadable).map(Arc::new);
    let revoked = revoke_key(&mut open_store(config)?, &find_command_author(), id, declared_keys)?;
    let object = json!({ "id": id, "revoked_at": format_rfc3339(revoked.revoked_at) });
    report_change(&format!("key {id} is revoked"), &object, json)
}

fn import(config: &Config, file: &Path, json: bool) -> Result<(), CommandFailure> {
    // A failed command must not leave a new store behind.
    let keys = ImportedKeys::read(&config.reloadable, file).map_err(|fault| {
        let mut failure = CommandFailure::from(fault);
        let hint = hint_for_unopened(file).map(|it| format!("; {it}"));
        failure.message_lines.iter_mut().for_each(|line| line.extend(hint.as_deref()));
        failure
    })?;
    if is_store_missing(config) {
        keys.check_names_of_new_accounts(&config.reloadable)?;
    }
    let ids =
        import_keys(&mut open_store(config)?, &config.reloadable, &find_command_author(), keys)?;
    report_change(&format!("{} imported", CountedNoun(ids.len(), "key")), &json!(ids), json)
}
