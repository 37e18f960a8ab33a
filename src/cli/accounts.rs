//! `riskgate accounts`: list them, set a plan or a limit.

use clap::Subcommand;
use serde_json::{Value, json};

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{format_columns, print_result, print_result_of_change};
use super::store_access::{check_account_name, check_plan, open_store, read_ring_rows};
use crate::store::{AccountRow, MonthlyLimit};

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
        #[arg(long, value_name = "N")]
        limit: Option<String>,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: AccountsCommand) -> Result<(), CommandFailure> {
    match command {
        AccountsCommand::List { config, json } => {
            let config = config.read_config()?;
            let accounts = read_ring_rows(&mut open_store(&config)?)?.accounts;
            print_result(render_accounts(&config, &accounts, json))
        }
        AccountsCommand::Set { config, name, plan, limit, json } => {
            let config = config.read_config()?;
            check_account_name("NAME", &name)?;
            check_plan(&config, plan.as_deref())?;
            if plan.is_none() && limit.is_none() {
                return Err(CommandFailure::usage("expected --plan or --limit, but found neither"));
            }
            let limit = limit.as_deref().map(parse_limit).transpose()?;
            let mut store = open_store(&config)?;
            store.set_account(&name, plan.as_deref(), limit)?;
            let mut accounts = read_ring_rows(&mut store)?.accounts;
            accounts.retain(|account| account.name == name);
            let done = format!("account {name} is set");
            print_result_of_change(&done, render_accounts(&config, &accounts, json))
        }
    }
}

/// Parses `--limit`. None means that the limit of the plan applies.
fn parse_limit(text: &str) -> Result<Option<MonthlyLimit>, CommandFailure> {
    match (text, text.parse::<i64>()) {
        ("unlimited", _) => Ok(Some(MonthlyLimit::Unlimited)),
        ("plan", _) => Ok(None),
        (_, Ok(calls @ 0..)) => Ok(Some(MonthlyLimit::Calls(calls.cast_unsigned()))),
        _ => Err(CommandFailure::usage(format!(
            "--limit: expected a whole number, \"unlimited\" or \"plan\", but found {text:?}"
        ))),
    }
}

/// Formats accounts as JSON or as a table.
fn render_accounts(config: &crate::config::Config, accounts: &[AccountRow], json: bool) -> String {
    let plan_of = |account: &AccountRow| {
        account.plan.clone().unwrap_or_else(|| crate::keys::DEFAULT_PLAN.to_owned())
    };
    let limit_of = |account: &AccountRow| {
        account.own_limit.or_else(|| config.plans.get(&plan_of(account)).copied())
    };
    if json {
        let object = |account: &AccountRow| {
            let limit = match limit_of(account) {
                Some(MonthlyLimit::Calls(calls)) => json!(calls),
                Some(MonthlyLimit::Unlimited) => json!("unlimited"),
                None => Value::Null,
            };
            let own = account.own_limit.is_some();
            json!({ "name": account.name, "plan": plan_of(account), "limit": limit, "own_limit": own })
        };
        return format!("{}\n", Value::Array(accounts.iter().map(object).collect()));
    }
    let rows: Vec<Vec<String>> = accounts
        .iter()
        .map(|account| {
            let limit = match limit_of(account) {
                Some(MonthlyLimit::Calls(calls)) => calls.to_string(),
                Some(MonthlyLimit::Unlimited) => "unlimited".to_owned(),
                None => "unknown plan".to_owned(),
            };
            let own = if account.own_limit.is_some() { "account" } else { "plan" };
            vec![account.name.clone(), plan_of(account), limit, own.to_owned()]
        })
        .collect();
    format_columns(&["ACCOUNT", "PLAN", "LIMIT", "SET BY"], &rows)
}
