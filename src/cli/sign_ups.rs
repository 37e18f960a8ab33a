//! `riskgate sign-ups`: shows and deletes the sign-ups of one person.
//!
//! The command reads the address from standard input, so that no list of processes has the address
//! as an argument.

use clap::Subcommand;
use serde_json::{Value, json};

use super::author::find_command_author;
use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{print_result, print_result_of_change};
use super::standard_input::{read_address, require_dash};
use super::store_access::{open_existing_store, open_store_to_read};
use crate::config::Config;
use crate::management::{SignUpOwner, delete_sign_ups, find_sign_ups, read_declared_keys};
use crate::model::email::EmailAddress;
use crate::model::month::format_rfc3339;
use crate::store::{SignUpsOfInboxes, Store};
use crate::support::counted::CountedNoun;

/// The commands that read an address, as a hint names them.
const COMMANDS: &str = "sign-ups show|delete";

#[derive(Debug, Subcommand)]
pub enum SignUpsCommand {
    /// Show how many sign-ups the store has of the inbox of an address, and when they were.
    Show(Args),
    /// Delete all sign-ups of the inbox of an address. Gateways forget them within two seconds.
    Delete(Args),
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// `-`: the address is read from standard input, so that it is in no list of processes.
    #[arg(value_name = "-", value_parser = |text: &str| require_dash(text, COMMANDS))]
    input: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub fn run(command: &SignUpsCommand) -> Result<(), CommandFailure> {
    match command {
        SignUpsCommand::Show(args) => {
            let (config, address) = (args.config.read_config_with_inbox_secret()?, read_address()?);
            let found = match open_store_to_read(&config)? {
                Some(mut store) => with_owner(&mut store, &config, &address, find_sign_ups)?,
                None => SignUpsOfInboxes::default(),
            };
            print_result(render_found(&found, args.json))
        }
        SignUpsCommand::Delete(args) => {
            let (config, address) = (args.config.read_config_with_inbox_secret()?, read_address()?);
            let (mut store, author) = (open_existing_store(&config)?, find_command_author());
            let deleted = with_owner(&mut store, &config, &address, |store, owner| {
                delete_sign_ups(store, &author, owner)
            })?;
            let done = format!("{} of this inbox deleted", CountedNoun(deleted, "sign-up"));
            let result = match args.json {
                true => format!("{}\n", json!({ "sign_ups": deleted })),
                false => format!("{done}; running gateways forget them within two seconds\n"),
            };
            print_result_of_change(&done, result)
        }
    }
}

/// Calls an operation with the owner of the inbox of an address.
fn with_owner<T, E>(
    store: &mut Store,
    config: &Config,
    address: &EmailAddress,
    operation: impl FnOnce(&mut Store, &SignUpOwner<'_>) -> Result<T, E>,
) -> Result<T, CommandFailure>
where
    CommandFailure: From<E>,
{
    let declared = read_declared_keys(&config.reloadable)?;
    let accounts: Vec<&str> = declared.iter().map(|it| it.key.account.as_str()).collect();
    let secret_of_file = config.startup.inbox_secret.as_ref();
    Ok(operation(store, &SignUpOwner { address, secret_of_file, accounts: &accounts })?)
}

fn render_found(found: &SignUpsOfInboxes, json: bool) -> String {
    let times = found.times.clone().map(|times| (*times.start(), *times.end()));
    if json {
        let (first, last) = (times.map(|it| it.0), times.map(|it| it.1));
        let time = |at: Option<i64>| at.map_or(Value::Null, |at| json!(format_rfc3339(at)));
        let count = found.count;
        return format!(
            "{}\n",
            json!({ "sign_ups": count, "first": time(first), "last": time(last) })
        );
    }
    let count = CountedNoun(found.count, "sign-up");
    match times {
        Some((first, last)) => format!(
            "{count} of this inbox, from {} to {}\n",
            format_rfc3339(first),
            format_rfc3339(last)
        ),
        None => format!("{count} of this inbox\n"),
    }
}
