//! `riskgate table allow`, `deny` and `clear`.

use clap::Args;

use super::super::author::find_command_author;
use super::super::config_args::ConfigArgs;
use super::super::failure::CommandFailure;
use super::super::output::{print_result_of_change, print_warning};
use super::super::store_access::{is_store_missing, open_store};
use crate::management::{
    OverrideChange, OverrideRequest, check_override_may_exist,
    clear_override as clear_override_in_store, set_override as set_override_in_store,
};
use crate::table::OverrideAction;

/// The arguments of `allow` and `deny`.
#[derive(Debug, Args)]
pub struct OverrideArgs {
    /// The domain. Unless --exact is given, names below it are covered too.
    domain: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// Match this name only, without names below it.
    #[arg(long)]
    exact: bool,
    /// A note for people, stored in the row.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// The last day on which the override applies, in UTC.
    #[arg(long, value_name = "YYYY-MM-DD")]
    until: Option<String>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// Writes an override into the store.
pub fn set_override(
    args: &OverrideArgs,
    action: OverrideAction,
    is_forced: bool,
) -> Result<(), CommandFailure> {
    let config = args.config.read_config()?;
    let request = OverrideRequest {
        domain: &args.domain,
        action,
        is_exact: args.exact,
        note: &args.note,
        until: args.until.as_deref(),
        is_forced,
    };
    // A failed command must not leave a new store behind.
    request.check(is_store_missing(&config))?;
    let (mut store, author) = (open_store(&config)?, find_command_author());
    let table = &config.reloadable.table;
    let change = set_override_in_store(&mut store, table, &author, &request)?;
    let done = format!("{} is {}", change.domain, change.action);
    report(&change, &done, "instead of", args.json)
}

/// Removes the overrides of a domain from the store.
pub fn clear_override(domain: &str, config: &ConfigArgs, json: bool) -> Result<(), CommandFailure> {
    let config = config.read_config()?;
    // A failed command must not leave a new store behind.
    let is_missing = is_store_missing(&config);
    check_override_may_exist(&config.reloadable.table, domain, is_missing)?;
    let (mut store, author) = (open_store(&config)?, find_command_author());
    let table = &config.reloadable.table;
    let change = clear_override_in_store(&mut store, table, &author, domain)?;
    let done = format!("{} has no override any more", change.domain);
    report(&change, &done, "removed", json)
}

/// Reports a change. Prints the rows that are gone, one a line, each after `gone`, so that people
/// can set them again.
fn report(
    change: &OverrideChange,
    done: &str,
    gone: &str,
    json: bool,
) -> Result<(), CommandFailure> {
    change.warnings.iter().for_each(print_warning);
    let rows = change.replaced.iter().map(|row| format!("{gone} {row}\n"));
    let result = match json {
        true => format!("{}\n", change.to_json()),
        false => format!("{done}\n{}", rows.collect::<String>()),
    };
    print_result_of_change(done, result)
}
