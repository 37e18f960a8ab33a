//! `riskgate table allow`, `deny` and `clear`.

use clap::Args;
use serde_json::json;

use super::super::config_args::ConfigArgs;
use super::super::failure::CommandFailure;
use super::super::output::print_result_of_change;
use crate::model::domain::{DnsName, Domain};
use crate::model::month::{format_rfc3339, parse_day_as_unix_seconds};
use crate::model::verdict::Rule;
use crate::quota::unix_now;
use crate::table::{NewOverride, OverrideAction, OverrideFile, Table, TableInputs, TableRow};

/// The arguments of `allow` and `deny`.
#[derive(Debug, Args)]
pub struct OverrideArgs {
    /// The domain; names below it are covered too.
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
    /// Also deny a name that the lists protect.
    #[arg(long)]
    force: bool,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// Writes an override to the file.
pub fn set_override(args: &OverrideArgs, action: OverrideAction) -> Result<(), CommandFailure> {
    let sources = args.config.read_config()?.table;
    let (file, name) = (find_override_file(&sources)?, parse_override_name(&args.domain)?);
    // Days in this form sort as text.
    let today = format_rfc3339(unix_now());
    let is_past = |until: &&String| {
        parse_day_as_unix_seconds(until).is_none() || until.as_str() < &today[..10]
    };
    if let Some(until) = args.until.as_ref().filter(is_past) {
        let expected = "--until: expected today or a later day such as 2030-12-31";
        return Err(CommandFailure::usage(format!("{expected}, but found {until:?}")));
    }
    // If the table can't be built even without the new row, gateways would not apply the row.
    Table::build(&sources, unix_now())?;
    if action == OverrideAction::Deny && !args.force {
        let lists = TableInputs { overrides_path: None, ..sources.clone() };
        let table = Table::build(&lists, unix_now())?;
        if let Some(protected) = find_protected_name(&table, &name, args) {
            let line = format!("{name}: the lists protect {protected}; --force denies it too");
            return Err(CommandFailure::failed(line));
        }
    }
    let (is_exact, until) = (args.exact, args.until.as_deref());
    let new = NewOverride { name: &name, action, is_exact, note: &args.note, last_day: until };
    let replaced = file.set_override(&new)?;
    let state = if action == OverrideAction::Allow { "allowed" } else { "denied" };
    let done = format!("{name} is {state} in {}", file.display_path());
    let object = json!({ "domain": name.as_str(), "action": state, "replaced": replaced });
    let result = match args.json {
        true => format!("{object}\n"),
        false => format!("{done}\n{}", format_rows("instead of", &replaced)),
    };
    print_result_of_change(&done, result)
}

/// Removes the overrides of a domain from the file.
pub fn clear_override(domain: &str, config: &ConfigArgs, json: bool) -> Result<(), CommandFailure> {
    let sources = config.read_config()?.table;
    let name = parse_override_name(domain)?;
    let removed = find_override_file(&sources)?.remove_overrides(&name)?;
    if removed.is_empty() {
        return Err(CommandFailure::failed(format!(
            "{name}: expected an override, but found none"
        )));
    }
    let done = format!("{name} has no override any more");
    let object = json!({ "domain": name.as_str(), "action": "cleared", "replaced": removed });
    let result = match json {
        true => format!("{object}\n"),
        false => format!("{done}\n{}", format_rows("removed", &removed)),
    };
    print_result_of_change(&done, result)
}

/// Formats removed rows, one a line, each after `what`, so that people can write them back.
fn format_rows(what: &str, rows: &[String]) -> String {
    rows.iter().map(|row| format!("{what} {row}\n")).collect()
}

/// Returns the first name that the lists protect and that this denial would flag: `name` itself or,
/// without `--exact`, a name below it. None if there is no such name.
fn find_protected_name(table: &Table, name: &DnsName, args: &OverrideArgs) -> Option<String> {
    let is_protected =
        |domain: &Domain| table.lookup(domain, unix_now()).verdict.rule == Rule::Protected;
    if Domain::parse(name.as_str()).is_ok_and(|domain| is_protected(&domain)) {
        return Some(name.to_string());
    }
    let below = format!(".{name}");
    let is_below = |row: &TableRow| {
        row.own_answer.verdict.rule == Rule::Protected && row.name.ends_with(&below) && !args.exact
    };
    table.rows().find(is_below).map(|row| row.name.to_owned())
}

fn find_override_file(sources: &TableInputs) -> Result<OverrideFile, CommandFailure> {
    let path = sources.overrides_path.as_ref();
    path.map(|path| OverrideFile::new(path)).ok_or_else(|| {
        CommandFailure::config(vec!["table.overrides: expected a file, but found none".to_owned()])
    })
}

fn parse_override_name(text: &str) -> Result<DnsName, CommandFailure> {
    DnsName::parse(text).map_err(|error| CommandFailure::usage(format!("domain: {error}")))
}
