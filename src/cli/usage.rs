//! `riskgate usage`: the calls of a month by account, or by day, route and key.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{format_columns, print_result, print_warning};
use super::store_access::{COMMAND_STORE_TIMEOUT, open_store_to_read};
use crate::config::Config;
use crate::management::{
    ManagementFault, find_month_to_show, read_declared_keys, read_present_time,
};
use crate::model::month::Month;
use crate::store::{DailyUsageRow, Store, UsageRow};

/// A node reports each second. It reports the day of a call no later than so long after its total.
const MAX_REPORT_DELAY: Duration = Duration::from_millis(2_500);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only this account.
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Another month than the present one, such as 2026-11. The store keeps the calls by day of the
    /// last thirteen months. A Redis server keeps the totals for some two months.
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
    let Some(mut store) = open_store_to_read(&config)? else {
        check_account_exists(None, &config, args)?;
        let month = args.month.unwrap_or_else(|| {
            Month::containing(read_present_time(&config.startup.store, COMMAND_STORE_TIMEOUT))
        });
        return match args.daily || args.csv {
            true => print_result(render_daily_usage(&[], month, args)),
            false => print_total_rows(&[], month, args.json),
        };
    };
    let month = args.month.map_or_else(|| find_month_to_show(&mut store), Ok)?;
    if args.daily || args.csv {
        let usage = MonthUsage::read(&mut store, month, args.account.as_deref())?;
        if usage.is_empty() {
            check_account_exists(Some(&mut store), &config, args)?;
        }
        usage.warn_about_calls_without_day(month);
        return print_result(render_daily_usage(&usage.rows, month, args));
    }
    read_and_print_totals(&mut store, month, &config, args)
}

/// Fails if the user named an account that is neither in the store nor in the key file.
fn check_account_exists(
    store: Option<&mut Store>,
    config: &Config,
    args: &Args,
) -> Result<(), CommandFailure> {
    let Some(name) = &args.account else { return Ok(()) };
    let is_in_store = match store {
        Some(store) => store.find_account(name)?.is_some(),
        None => false,
    };
    let is_declared = || {
        let keys = read_declared_keys(&config.reloadable)?;
        Ok::<_, ManagementFault>(keys.iter().any(|declared| declared.key.account == *name))
    };
    match is_in_store || is_declared()? {
        true => Ok(()),
        false => Err(CommandFailure::unknown_account(name)),
    }
}

/// Reads and prints the calls of the month by account. Fails if a row is damaged.
fn read_and_print_totals(
    store: &mut Store,
    month: Month,
    config: &Config,
    args: &Args,
) -> Result<(), CommandFailure> {
    let rows = store.read_usage(month, args.account.as_deref())?;
    if rows.is_empty() {
        check_account_exists(Some(store), config, args)?;
    }
    let (damaged, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_damaged);
    print_total_rows(&rows, month, args.json)?;
    // The readable rows are printed even if other rows are damaged.
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

/// What the store knows of a month.
struct MonthUsage {
    totals: Vec<UsageRow>,
    /// The calls by day, route and key.
    rows: Vec<DailyUsageRow>,
    /// The accounts whose totals are higher than the sums of their days, each with its total, and
    /// how many of these calls have no day.
    without_day: Vec<(String, u64, u64)>,
}

impl MonthUsage {
    /// Reads the usage of a month. A node counts a call in its total a moment before it counts the
    /// call by day. A report of the node between the two leaves the day to the next report. So if
    /// calls have no day, this function reads the days once more after that report.
    fn read(
        store: &mut Store,
        month: Month,
        account: Option<&str>,
    ) -> Result<MonthUsage, ManagementFault> {
        // The totals come first, so that a call between the two reads does not look lost.
        let totals = store.read_usage(month, account)?;
        let rows = store.read_daily_usage(month, account, None, usize::MAX)?;
        let without_day = find_calls_without_day(&totals, &rows);
        if without_day.is_empty() {
            return Ok(MonthUsage { totals, rows, without_day });
        }
        std::thread::sleep(MAX_REPORT_DELAY);
        // A refund meanwhile lowers the total and the day.
        let mut totals = store.read_usage(month, account)?;
        for total in &mut totals {
            let before = without_day.iter().find(|(account, ..)| *account == total.account);
            total.spent = before.map_or(0, |(_, spent, _)| total.spent.min(*spent));
        }
        let rows = store.read_daily_usage(month, account, None, usize::MAX)?;
        let without_day = find_calls_without_day(&totals, &rows);
        Ok(MonthUsage { totals, rows, without_day })
    }

    fn is_empty(&self) -> bool {
        self.totals.is_empty() && self.rows.is_empty()
    }

    /// Prints a warning for each account whose total of the month is higher than the sum of its
    /// days: an earlier version counted the missing calls without their day, or the store has lost
    /// the days that a node which has ended had reported.
    fn warn_about_calls_without_day(&self, month: Month) {
        for (account, spent, missing) in &self.without_day {
            print_warning(format!(
                "account {account}: {missing} of the {spent} calls of {month} have no day: an \
                 earlier version of riskgate counted them, or the store has lost their days"
            ));
        }
    }
}

/// Finds the accounts whose totals are higher than the sums of their days. Returns each with its
/// total, and how many of these calls have no day.
fn find_calls_without_day(totals: &[UsageRow], rows: &[DailyUsageRow]) -> Vec<(String, u64, u64)> {
    let mut with_day: HashMap<&str, u64> = HashMap::new();
    for row in rows {
        let sum = with_day.entry(&row.account).or_default();
        *sum = sum.saturating_add(row.calls);
    }
    let missing = |total: &UsageRow| {
        let with_day = with_day.get(total.account.as_str()).copied().unwrap_or_default();
        total.spent.saturating_sub(with_day)
    };
    let readable = totals.iter().filter(|total| !total.is_damaged && missing(total) > 0);
    readable.map(|total| (total.account.clone(), total.spent, missing(total))).collect()
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

/// Formats a field of CSV (RFC 4180). Puts an apostrophe before a text that a spreadsheet would
/// take for a formula.
fn format_csv_field(field: &str) -> String {
    let is_formula = field.starts_with(['=', '+', '-', '@']);
    let field = if is_formula { format!("'{field}") } else { field.to_owned() };
    if field.contains([',', '"']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

fn print_total_rows(rows: &[UsageRow], month: Month, as_json: bool) -> Result<(), CommandFailure> {
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
