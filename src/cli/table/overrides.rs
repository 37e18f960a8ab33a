//! `riskgate table allow`, `deny` and `clear`.

use clap::Args;

use super::super::config_args::ConfigArgs;
use super::super::failure::Failure;
use super::super::output::show_done;
use crate::model::domain::{Domain, Name};
use crate::model::month::rfc3339;
use crate::model::verdict::Rule;
use crate::quota::unix_now;
use crate::table::{NewOverride, OverrideFile, Row, Table, TableSources, Word, is_day};

/// What is said of a domain.
#[derive(Debug, Args)]
pub struct OverrideArgs {
    /// The domain; names below it are covered too.
    domain: String,
    #[command(flatten)]
    config: ConfigArgs,
    /// This name alone.
    #[arg(long)]
    exact: bool,
    /// Words for people, kept beside the row.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// The last day on which it counts, in UTC.
    #[arg(long, value_name = "YYYY-MM-DD")]
    until: Option<String>,
    /// Also deny a name that the lists protect.
    #[arg(long)]
    force: bool,
}

/// Writes what is said of a domain.
pub fn set(args: &OverrideArgs, word: Word) -> Result<(), Failure> {
    let sources = args.config.read()?.table;
    let (file, name) = (override_file(&sources)?, override_name(&args.domain)?);
    // Days of this form are in the order of their letters.
    let today = rfc3339(unix_now());
    let is_past = |until: &&String| !is_day(until) || until.as_str() < &today[..10];
    if let Some(until) = args.until.as_ref().filter(is_past) {
        let expected = "--until: expected today or a later day such as 2030-12-31";
        return Err(Failure::usage(format!("{expected}, but found {until:?}")));
    }
    // Where the table can't be made already, a row more would not be followed.
    Table::assemble(&sources, unix_now())?;
    if word == Word::Deny && !args.force {
        let lists = TableSources { overrides: None, ..sources.clone() };
        let table = Table::assemble(&lists, unix_now())?;
        if let Some(protected) = protected_at_or_below(&table, &name, args) {
            let line = format!("{name}: the lists protect {protected}; --force denies it too");
            return Err(Failure::failed(line));
        }
    }
    let (is_exact, until) = (args.exact, args.until.as_deref());
    let new = NewOverride { name: &name, word, is_exact, note: &args.note, until };
    let replaced = file.set(&new)?;
    let word = if word == Word::Allow { "allowed" } else { "denied" };
    let done = format!("{name} is {word} in {}", file.shown_path());
    show_done(&done, format!("{done}\n{}", listed("instead of", &replaced)))
}

/// Takes back what is said of a domain.
pub fn clear(domain: &str, config: &ConfigArgs) -> Result<(), Failure> {
    let sources = config.read()?.table;
    let name = override_name(domain)?;
    let removed = override_file(&sources)?.clear(&name)?;
    if removed.is_empty() {
        return Err(Failure::failed(format!("{name}: expected an override, but found none")));
    }
    let done = format!("{name} has no override any more");
    show_done(&done, format!("{done}\n{}", listed("removed", &removed)))
}

/// Rows that are gone from the file, so that people can write them again.
fn listed(what: &str, rows: &[String]) -> String {
    rows.iter().map(|row| format!("{what} {row}\n")).collect()
}

/// A name that the lists protect, and that a denial would flag.
fn protected_at_or_below(table: &Table, name: &Name, args: &OverrideArgs) -> Option<String> {
    let is_protected =
        |domain: &Domain| table.lookup(domain, unix_now()).verdict.rule == Rule::Protected;
    if Domain::parse(name.as_str()).is_ok_and(|domain| is_protected(&domain)) {
        return Some(name.to_string());
    }
    let below = format!(".{name}");
    let is_below = |row: &Row| {
        row.own.verdict.rule == Rule::Protected && row.name.ends_with(&below) && !args.exact
    };
    table.names().find(is_below).map(|row| row.name.to_owned())
}

fn override_file(sources: &TableSources) -> Result<OverrideFile, Failure> {
    let path = sources.overrides.as_ref();
    path.map(|path| OverrideFile::at(path)).ok_or_else(|| {
        Failure::config(vec!["table.overrides: expected a file, but found none".to_owned()])
    })
}

fn override_name(text: &str) -> Result<Name, Failure> {
    Name::parse(text).map_err(|error| Failure::usage(format!("domain: {error}")))
}
