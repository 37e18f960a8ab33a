//! `riskgate table allow`, `deny` and `clear`.

use clap::Args;

use super::super::author::find_command_author;
use super::super::config_args::ConfigArgs;
use super::super::failure::CommandFailure;
use super::super::output::{print_result_of_change, print_warning};
use super::super::store_access::{is_store_missing, open_store};
use crate::management::{
    OverrideChange, OverrideRequest, check_override_may_exist,
    clear_override as clear_override_in_store, set_overrides as set_overrides_in_store,
};
use crate::table::OverrideAction;

/// The arguments of `allow` and `deny`.
#[derive(Debug, Args)]
pub struct OverrideArgs {
    /// The domains. Unless --exact is given, names below them are covered too.
    #[arg(required = true, value_name = "DOMAIN")]
    domains: Vec<String>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Match these names only, without names below them.
    #[arg(long)]
    exact: bool,
    /// A note for people, stored in each row.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// The last day on which the override applies, in UTC.
    #[arg(long, value_name = "YYYY-MM-DD")]
    until: Option<String>,
    /// Print a JSON object for each domain, one on a line.
    #[arg(long)]
    json: bool,
}

/// Writes an override of each domain into the store.
pub fn set_overrides(
    args: &OverrideArgs,
    action: OverrideAction,
    is_forced: bool,
) -> Result<(), CommandFailure> {
    let config = args.config.read_config()?;
    let request = OverrideRequest {
        domains: &args.domains,
        action,
        is_exact: args.exact,
        note: &args.note,
        until: args.until.as_deref(),
        is_forced,
    };
    // A failed command must not leave a new store behind.
    let table = &config.reloadable.table;
    request.check(table, is_store_missing(&config))?;
    let (mut store, author) = (open_store(&config)?, find_command_author());
    let changes = set_overrides_in_store(&mut store, table, &author, &request)?;
    let done = |change: &OverrideChange| format!("{} is {}", change.domain, change.action);
    report(&changes, done, "instead of", args.json)
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
    let done = |change: &OverrideChange| format!("{} has no override any more", change.domain);
    report(&[change], done, "removed", json)
}

/// Reports changes, which have the same warnings. Prints the rows that are gone, one a line, each
/// after `gone`, so that people can set them again.
fn report(
    changes: &[OverrideChange],
    describe: impl Fn(&OverrideChange) -> String,
    gone: &str,
    json: bool,
) -> Result<(), CommandFailure> {
    changes.iter().take(1).flat_map(|change| &change.warnings).for_each(print_warning);
    let render = |change: &OverrideChange| match json {
        true => format!("{}\n", change.to_json()),
        false => {
            let rows = change.replaced.iter().map(|row| format!("{gone} {row}\n"));
            format!("{}\n{}", describe(change), rows.collect::<String>())
        }
    };
    let done: Vec<String> = changes.iter().map(&describe).collect();
    print_result_of_change(&done.join(", "), changes.iter().map(render).collect::<String>())
}
