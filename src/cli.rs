//! The command line: one file a verb.
//!
//! Owns words and exit codes: 0 done, 1 failed, 2 usage, 78 bad config or data. Whatever is
//! asked for goes to stdout, words about it to stderr.

mod accounts;
mod check;
mod config_args;
mod demo;
mod failure;
mod keys;
mod output;
mod run;
mod store;
mod store_access;
mod table;
mod usage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::store::redact_url;
use config_args::ConfigArgs;
use failure::CommandFailure;

/// How risky is this e-mail domain? A gateway that answers, and guards what lies behind it.
#[derive(Debug, Parser)]
#[command(name = "riskgate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    Run(run::Args),
    /// Run everything on loopback with nothing prepared, and print three requests to try.
    Demo(demo::Args),
    /// Read config, keys, table and store as `run` would, and tell every fault.
    Check(ConfigArgs),
    /// Create, list, rotate, revoke and import keys.
    Keys {
        #[command(subcommand)]
        command: keys::KeysCommand,
    },
    /// List accounts, set a plan or a limit.
    Accounts {
        #[command(subcommand)]
        command: accounts::AccountsCommand,
    },
    /// Show what was spent this month.
    Usage(usage::Args),
    /// Begin a store on a server, or move one.
    Store {
        #[command(subcommand)]
        command: store::StoreCommand,
    },
    /// Build, inspect, look up and compare tables.
    Table {
        #[command(subcommand)]
        command: table::TableCommand,
    },
}

impl From<clap::Error> for CommandFailure {
    /// What clap has to say is not always a failure: help and version are results.
    fn from(said: clap::Error) -> CommandFailure {
        let code = u8::try_from(said.exit_code()).unwrap_or(2);
        // It repeats words of the command line, and one may be the address of a store.
        let text: String = said
            .render()
            .to_string()
            .split_inclusive(char::is_whitespace)
            .map(redact_word)
            .collect();
        match said.use_stderr() {
            true => CommandFailure { lines: vec![text.trim_end().to_owned()], code },
            false => output::print_result(text)
                .err()
                .unwrap_or(CommandFailure { lines: Vec::new(), code }),
        }
    }
}

/// Runs what the command line says.
pub fn main() -> ExitCode {
    let done =
        Cli::try_parse().map_err(CommandFailure::from).and_then(|command| match command.command {
            Command::Run(args) => run::run(args),
            Command::Demo(args) => demo::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Keys { command: verb } => keys::run(verb),
            Command::Accounts { command: verb } => accounts::run(verb),
            Command::Usage(args) => usage::run(&args),
            Command::Store { command: verb } => store::run(verb),
            Command::Table { command: verb } => table::run(verb),
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.lines.iter().for_each(output::print_message);
            ExitCode::from(failure.code)
        }
    }
}

/// A word of the command line, without what may be a password.
fn redact_word(word: &str) -> String {
    let trimmed = word.trim_matches(|c: char| c.is_whitespace() || "'\"`".contains(c));
    match trimmed.contains("://") || trimmed.contains(['@', '?']) {
        true => word.replacen(trimmed, &redact_url(trimmed), 1),
        false => word.to_owned(),
    }
}
