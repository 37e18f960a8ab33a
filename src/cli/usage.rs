//! `riskgate usage`: the calls of a month by account, or by day, route and key.

use serde_json::{Value, json};

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{format_columns, print_result};
use super::store_access::open_store;
use crate::management::{month_to_show, read_daily_usage_of_month};
use crate::model::month::Month;
use crate::store::{DailyUsageRow, Store, UsageRow};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only this account.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Another month than the present one, such as 2026-11. The store keeps the calls by day of the
    /// last thirteen months. A Redis server keeps the totals of a past month for 62 days only.
    #[arg(long, value_name = "M", value_parser = super::store::parse_month)]
    month: Option<Month>,
    /// Count by day, route and key.
    #[arg(long)]
    daily: bool,
    /// Print the counts by day, route and key as CSV.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print a JSON array of objects.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), CommandFailure> {
    let config = args.config.read_config()?;
    let mut store = open_store(&config)?;
    let month = args.month.map_or_else(|| month_to_show(&mut store), Ok)?;
    if args.daily || args.csv {
        let rows = read_daily_usage_of_month(&mut store, month, args.account.as_deref())?;
        return print_result(render_daily_usage(&rows, month, args));
    }
    print_totals(&mut store, month, args)
}

/// Prints the calls of the month by account.
fn print_totals(store: &mut Store, month: Month, args: &Args) -> Result<(), CommandFailure> {
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

/// Renders usage by day as CSV, as JSON or as a table.
fn render_daily_usage(rows: &[DailyUsageRow], month: Month, args: &Args) -> String {
    if args.csv {
        let line = |row: &DailyUsageRow| {
            let DailyUsageRow { account, route, key_id, calls, .. } = row;
            let fields = [account, route, key_id].map(|field| format_csv_field(field));
            let [account, route, key_id] = fields;
            format!("{},{account},{route},{key_id},{calls}\n", row.date(month))
        };
        let lines = rows.iter().map(line);
        return ["day,account,route,key_id,calls\n".to_owned()].into_iter().chain(lines).collect();
    }
    if args.json {
        let objects = rows.iter().map(|row| row.to_json(month));
        return format!("{}\n", Value::Array(objects.collect()));
    }
    let row = |row: &DailyUsageRow| {
        let DailyUsageRow { account, route, key_id, calls, .. } = row.clone();
        vec![row.date(month), account, route, key_id, calls.to_string()]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    format_columns(&["DAY", "ACCOUNT", "ROUTE", "KEY", "CALLS"], &rows)
}

/// Formats a field of CSV (RFC 4180). Puts an apostrophe before a name that a spreadsheet would
/// take for a formula.
fn format_csv_field(field: &str) -> String {
    let is_formula = field.starts_with(['=', '+', '-', '@']);
    let field = if is_formula { format!("'{field}") } else { field.to_owned() };
    if field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
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
