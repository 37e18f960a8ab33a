//! `riskgate accounts`: lists accounts, and sets the plan or the limit of an account.

use clap::Subcommand;
use serde_json::Value;

use super::author::find_command_author;
use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{format_columns, print_message, print_result, print_result_of_change};
use super::store_access::{is_store_missing, open_store, read_ring_rows_of_config};
use crate::management::{
    AccountEntry, check_account_change, check_account_name, check_name_if_undeclared,
    list_accounts, parse_limit_change, read_declared_keys, set_account,
};
use crate::store::MonthlyLimit;

#[derive(Debug, Subcommand)]
pub enum AccountsCommand {
    /// List accounts with their effective limits.
    List {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print a JSON array of objects.
        #[arg(long)]
        json: bool,
    },
    /// Create an account, or change its plan or limit. Gateways apply it within a second.
    Set {
        #[command(flatten)]
        config: ConfigArgs,
        /// The account.
        name: String,
        /// A plan of the config.
        #[arg(long)]
        plan: Option<String>,
        /// Calls per month: a number, "unlimited", or "plan" for the plan's own limit.
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        limit: Option<String>,
        /// Print a JSON array with the account.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: AccountsCommand) -> Result<(), CommandFailure> {
    match command {
        AccountsCommand::List { config, json } => {
            let config = config.read_config()?;
            let rows = read_ring_rows_of_config(&config)?;
            let declared = read_declared_keys(&config.reloadable)?;
            let accounts = list_accounts(&rows.accounts, &declared, &config.reloadable.plans);
            print_result(render_accounts(&accounts, json))
        }
        AccountsCommand::Set { config, name, plan, limit, json } => {
            let config = config.read_config()?;
            check_account_name("NAME", &name)?;
            let limit = limit.map(|text| parse_limit_change(&text, format!("{text:?}")));
            let (plan, limit) = (plan.as_deref(), limit.transpose()?);
            // A failed command must not leave a new store behind.
            check_account_change(&config.reloadable, &name, plan, limit)?;
            if is_store_missing(&config) {
                check_name_if_undeclared(&config.reloadable, &name)?;
            }
            let (mut store, author) = (open_store(&config)?, find_command_author());
            // With a faulty key file, nobody knows whether the account is new.
            let is_undeclared = read_declared_keys(&config.reloadable)
                .is_ok_and(|keys| !keys.iter().any(|declared| declared.key.account == name));
            let is_new = is_undeclared && store.find_account(&name)?.is_none();
            let account = set_account(&mut store, &config.reloadable, &author, &name, plan, limit)?;
            if is_new {
                print_message(format!("created the account {name}; it has no key"));
            }
            let done = format!("account {name} is set");
            print_result_of_change(&done, render_accounts(&[account], json))
        }
    }
}

/// Formats accounts as JSON or as a table.
fn render_accounts(accounts: &[AccountEntry], json: bool) -> String {
    if json {
        let objects: Vec<Value> = accounts.iter().map(AccountEntry::to_json).collect();
        return format!("{}\n", Value::Array(objects));
    }
    let row = |account: &AccountEntry| {
        let limit = match account.limit {
            Some(MonthlyLimit::Calls(calls)) => calls.to_string(),
            Some(MonthlyLimit::Unlimited) => "unlimited".to_owned(),
            None => "unknown plan".to_owned(),
        };
        let set_by = if account.has_own_limit { "account" } else { "plan" };
        vec![account.name.clone(), account.plan.clone(), limit, set_by.to_owned()]
    };
    let rows: Vec<Vec<String>> = accounts.iter().map(row).collect();
    format_columns(&["ACCOUNT", "PLAN", "LIMIT", "SET BY"], &rows)
}
