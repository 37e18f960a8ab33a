//! `riskgate admin-token`: makes tokens for the admin listener.

use clap::Subcommand;
use serde_json::json;

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{describe_stdout_error, print_message, write_secret};
use super::store_access::{COMMAND_STORE_TIMEOUT, warn_about_clocks};
use crate::config::{TokenScope, find_nearest_name};
use crate::keys::{ID_OR_ACCOUNT_FORMAT, Token, format_key_hash, is_valid_id_or_account};
use crate::management::{Expiry, judge_present_time};
use crate::model::believed_time::BelievedTime;
use crate::model::month::format_rfc3339;
use crate::quota::find_machine_time;

/// The prefix of admin tokens, which distinguishes them from keys.
const TOKEN_PREFIX: &str = "rga_";

#[derive(Debug, Subcommand)]
pub enum AdminTokenCommand {
    /// Make a token, and print it once, alone on stdout. The section for the config, which has only
    /// the hash of the token, goes to stderr.
    Create {
        /// The config whose store tells the time if the clock of this machine is wrong.
        #[command(flatten)]
        config: ConfigArgs,
        /// The name of the token, which the audit shows.
        #[arg(long)]
        name: String,
        /// What the token may do: read, write, or account:NAME for what concerns one account.
        #[arg(long, default_value = "read")]
        scope: String,
        /// When the token expires: 90d, 12h, or a time such as 2027-01-01T00:00:00Z.
        #[arg(long, value_name = "WHEN")]
        expires: Option<String>,
        /// Print a JSON object with the token and the values for the config instead.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: AdminTokenCommand) -> Result<(), CommandFailure> {
    let AdminTokenCommand::Create { config, name, scope, expires, json } = command;
    if !is_valid_id_or_account(&name) {
        let line = format!("--name: expected {ID_OR_ACCOUNT_FORMAT}, but found {name:?}");
        return Err(CommandFailure::usage(line));
    }
    if TokenScope::parse(&scope).is_none() {
        let expected = "--scope: expected read, write or account:NAME";
        let near = find_nearest_name(&scope, ["read", "write"].into_iter());
        let hint = near.map(|it| format!("; did you mean {it}?")).unwrap_or_default();
        return Err(CommandFailure::usage(format!("{expected}, but found {scope:?}{hint}")));
    }
    let expires = expires.as_deref().map(Expiry::parse).transpose()?;
    let expires = match expires {
        Some(when) => Some(format_rfc3339(when.to_unix_seconds(read_time(&config))?)),
        None => None,
    };
    let token =
        Token::generate(TOKEN_PREFIX).map_err(|error| CommandFailure::failed(error.to_string()))?;
    let hash = format_key_hash(token.expose_text());
    let text = match json {
        true => json!({
            "name": name, "token": token.expose_text(), "hash": hash, "scope": scope,
            "expires": expires,
        })
        .to_string(),
        false => token.expose_text().to_owned(),
    };
    write_secret(format!("{text}\n").as_bytes())
        .map_err(|error| CommandFailure::failed(describe_stdout_error(&error)))?;
    if !json {
        let expiry = expires.map_or(String::new(), |at| format!("\nexpires = \"{at}\""));
        print_message(format!(
            "The token is shown only now. It works as soon as the config has this section:\n\n\
             [[admin.token]]\nname = \"{name}\"\nhash = \"{hash}\"\nscope = \"{scope}\"{expiry}"
        ));
    }
    Ok(())
}

/// Returns the present time by the clocks and by what the store of the config knows. Prints a
/// warning if there is a problem with the clocks. If the config can't be read, the clock of this
/// machine tells the time, so that a faulty config can still get a token.
fn read_time(config: &ConfigArgs) -> BelievedTime {
    let judged = match config.read_config() {
        Ok(config) => judge_present_time(&config.startup.store, COMMAND_STORE_TIMEOUT),
        Err(_) => find_machine_time(),
    };
    warn_about_clocks(judged.problem, judged.time);
    judged.time
}
