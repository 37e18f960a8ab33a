//! `riskgate usage`: the calls of this month by account.

use serde_json::{Value, json};

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{format_columns, print_result};
use super::store_access::open_store;
use crate::model::month::Month;
use crate::quota::unix_now;
use crate::store::UsageRow;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only this account.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Print a JSON array of objects.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), CommandFailure> {
    let config = args.config.read_config()?;
    let mut store = open_store(&config)?;
    let now = Month::containing(store.unix_now()?.unwrap_or_else(unix_now));
    let month = store.latest_month()?.map_or(now, |latest| latest.max(now));
    let rows = store.read_usage(month, args.account.as_deref())?;
    let (damaged, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_damaged);
    print_usage(&rows, month, args.json)?;
    // The readable rows are printed first, even if others are damaged.
    let line = |row: UsageRow| {
        format!("account {}: expected its numbers of {month}, but found others", row.account)
    };
    match damaged.is_empty() {
        true => Ok(()),
        false => Err(CommandFailure {
            message_lines: damaged.into_iter().map(line).collect(),
            exit_code: 1,
        }),
    }
}

fn print_usage(rows: &[UsageRow], month: Month, as_json: bool) -> Result<(), CommandFailure> {
    if as_json {
        let object = |row: &UsageRow| {
            json!({
                "account": row.account, "month": month.to_string(), "month_count": row.spent,
                "leased": row.leased, "reset_at": month.reset_at(),
            })
        };
        return print_result(format!("{}\n", Value::Array(rows.iter().map(object).collect())));
    }
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| vec![row.account.clone(), month.to_string(), row.spent.to_string()])
        .collect();
    print_result(format_columns(&["ACCOUNT", "MONTH", "CALLS"], &rows))
}
