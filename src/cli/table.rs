//! `riskgate table`: builds, inspects, queries and compares tables, sets overrides, fetches feeds,
//! and gathers names and hosts for lists.
//!
//! Owns only messages and exit codes. The `table` module decides what a table is, and whether a
//! table may replace another one.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};

mod diff;
mod dns;
mod feeds;
mod hosts;
mod lookup;
mod overrides;

use super::config_args::ConfigArgs;
use super::failure::{CommandFailure, EXIT_CONFIG};
use super::lookup_sources::LookupSources;
use super::output::{print_result, print_result_of_change};
use crate::model::month::format_rfc3339;
use crate::support::counted::CountedNoun;
use crate::support::machine_clock::machine_unix_now;
use crate::table::{OverrideAction, Table, TableFault, TableFaults, TableLocation};

#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Build a compiled table from a directory with a manifest.toml.
    Build {
        /// The directory, or a compiled table to rewrite.
        source: PathBuf,
        /// The file to write. If it exists, the new table must be one that may replace it.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Replace an existing file without that check.
        #[arg(long)]
        force: bool,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Show the contents of a table and their sources.
    Inspect {
        /// A directory or a compiled table; without it, the lists inside the binary.
        source: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the answers of a table for domains, with the reasons.
    Lookup {
        /// The domains.
        #[arg(required = true, value_name = "DOMAIN")]
        names: Vec<String>,
        #[command(flatten)]
        config: ConfigArgs,
        /// A directory or a compiled table, used alone. By default the table of the config, with
        /// overrides and feeds, and with learned DNS results if `dns.learn` is on.
        #[arg(long, value_name = "SOURCE")]
        table: Option<PathBuf>,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Override the lists: each domain is safe. Running gateways apply it.
    Allow(overrides::OverrideArgs),
    /// Override the lists: each domain is disposable. Running gateways apply it.
    Deny {
        #[command(flatten)]
        row: overrides::OverrideArgs,
        /// Also deny a name that the lists protect.
        #[arg(long)]
        force: bool,
    },
    /// Remove the overrides of a domain that `allow` or `deny` wrote.
    Clear {
        /// The domain.
        domain: String,
        #[command(flatten)]
        config: ConfigArgs,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Fetch feeds once, for example from cron if the gateways of this machine fetch none.
    Update {
        /// The feeds to fetch; all by default.
        names: Vec<String>,
        #[command(flatten)]
        config: ConfigArgs,
        /// Accept a list however much it changed, and even if it is older.
        #[arg(long)]
        force: bool,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Show the status of each feed.
    Feeds {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Query the DNS for names, and write the results as a list of kind `mx`.
    Resolve {
        /// A file with one name per line, or a CSV file with names in its first column; standard
        /// input by default.
        #[arg(value_name = "FILE", default_value = "-")]
        names: PathBuf,
        /// The file to write instead of standard output.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write the addresses of the mail hosts too, for `suggest-hosts`. A list of kind `mx`
        /// can't have this third column.
        #[arg(long)]
        addresses: bool,
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Propose MX hosts and addresses of disposable operators for a person to review: those that
    /// serve more listed names than others, and no protected one.
    SuggestHosts {
        /// The output of `resolve` for listed and other names. Without it, the command reads only
        /// what riskgate learned from the DNS.
        #[arg(value_name = "MX")]
        mx: Option<PathBuf>,
        /// How many names a host or an address must serve at least.
        #[arg(long, value_name = "N", default_value_t = 3)]
        min: usize,
        #[command(flatten)]
        config: ConfigArgs,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Compare two tables, each a directory or a compiled file.
    Diff {
        /// The current table.
        old: PathBuf,
        /// The new table.
        new: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: TableCommand) -> Result<(), CommandFailure> {
    let mut out = Vec::new();
    match command {
        TableCommand::Build { source, output, force, json } => {
            return build(source, &output, force, json);
        }
        TableCommand::Inspect { source, json } => inspect(&mut out, source, json)?,
        TableCommand::Allow(row) => {
            return overrides::set_overrides(&row, OverrideAction::Allow, false);
        }
        TableCommand::Deny { row, force } => {
            return overrides::set_overrides(&row, OverrideAction::Deny, force);
        }
        TableCommand::Clear { domain, config, json } => {
            return overrides::clear_override(&domain, &config, json);
        }
        TableCommand::Update { names, config, force, json } => {
            return feeds::update_feeds(&names, &config.read_config()?, force, json);
        }
        TableCommand::Feeds { config, json } => {
            feeds::print_feed_statuses(&mut out, &config.read_config()?, json)?
        }
        TableCommand::Lookup { names, config, table, json } => {
            let sources = match table {
                Some(path) => LookupSources::of_table_alone(path, machine_unix_now()),
                None => LookupSources::of_config(&config.read_config()?),
            };
            let refused = lookup::print_lookups(&mut out, &names, sources, json)?;
            // The answers are printed even if other names are invalid.
            print_result(out)?;
            return if refused.is_empty() {
                Ok(())
            } else {
                Err(CommandFailure { message_lines: refused, exit_code: 1 })
            };
        }
        TableCommand::Resolve { names, output, addresses, config } => {
            let (output, config) = (output.as_deref(), config.read_config()?);
            return dns::resolve_names(&names, output, addresses, &config);
        }
        TableCommand::SuggestHosts { mx, min, config, json } => {
            let config = config.read_config()?;
            hosts::suggest_disposable_hosts(&mut out, mx.as_deref(), min, json, &config)?;
        }
        TableCommand::Diff { old, new, json } => diff::print_diff(&mut out, old, new, json)?,
    }
    print_result(out)
}

impl From<TableFaults> for CommandFailure {
    fn from(error: TableFaults) -> CommandFailure {
        let is_io = error.faults().iter().all(|fault| matches!(fault, TableFault::Io { .. }));
        CommandFailure {
            message_lines: vec![error.to_string()],
            exit_code: if is_io { 1 } else { EXIT_CONFIG },
        }
    }
}

fn location_or_bundled(path: Option<PathBuf>) -> TableLocation {
    path.map_or(TableLocation::Bundled, TableLocation::Path)
}

fn build(source: PathBuf, output: &Path, force: bool, json: bool) -> Result<(), CommandFailure> {
    let table = Table::compile(&TableLocation::Path(source), machine_unix_now())?;
    if !force && output.exists() {
        table.check_succession(&Table::load(&TableLocation::Path(output.to_owned()))?)?;
    }
    table.write_to(output)?;
    let (rows, version) = (table.row_count(), table.version());
    let done = format!("{}: {}, version {version}", output.display(), CountedNoun(rows, "row"));
    let object = json!({ "file": output, "rows": rows, "version": version });
    let result = if json { format!("{object}\n") } else { format!("{done}\n") };
    print_result_of_change(&done, result)
}

fn inspect(out: &mut dyn Write, source: Option<PathBuf>, json: bool) -> Result<(), CommandFailure> {
    let table = Table::load(&location_or_bundled(source))?;
    let warnings = table.warnings(machine_unix_now());
    if json {
        let classes: Vec<Value> = table
            .row_counts_by_rule()
            .iter()
            .map(|(reason, rule, rows)| {
                json!({ "reason": reason.as_str(), "rule": rule.as_str(), "rows": rows })
            })
            .collect();
        let value = json!({
            "version": table.version(),
            "built_at": format_rfc3339(table.built_at()),
            "rows": table.row_count(),
            "classes": classes,
            "lists": table.lists(),
            "sources": table.sources(),
            "seed": table.top_list_seed().len(),
            "warnings": warnings,
        });
        return Ok(writeln!(out, "{value:#}")?);
    }
    writeln!(out, "version   {}", table.version())?;
    writeln!(out, "built at  {}", format_rfc3339(table.built_at()))?;
    writeln!(out, "rows      {}", table.row_count())?;
    writeln!(out, "\nrows by reason and rule")?;
    for (reason, rule, rows) in table.row_counts_by_rule() {
        writeln!(out, "  {:<14} {:<14} {rows:>9}", reason.as_str(), rule.as_str())?;
    }
    writeln!(out, "\nlists")?;
    for list in table.lists() {
        write!(out, "  {:<22} {:<14} {:>9} rows", list.file, list.kind, list.rows)?;
        match list.ignored {
            0 => writeln!(out)?,
            ignored => writeln!(out, ", {ignored} ignored: public suffixes match no list row")?,
        }
    }
    writeln!(out, "\nsources")?;
    for source in table.sources() {
        let (name, version, date) = (&source.name, &source.version, &source.date);
        let rows = source.valid_rows;
        writeln!(out, "  {name:<26} {version:<18} {date} {rows:>9} rows  {}", source.licence)?;
    }
    for warning in warnings {
        writeln!(out, "\nwarning: {warning}")?;
    }
    Ok(())
}
