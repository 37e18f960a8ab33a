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

use crate::store::without_password;
use config_args::ConfigArgs;
use failure::Failure;

/// How risky is this e-mail domain? A gateway that answers, and guards what lies behind it.
#[derive(Debug, Parser)]
#[command(name = "riskgate", version, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the gateway.
    Run(run::Args),
    /// Run everything on loopback with nothing prepared, and print three requests to try.
    Demo(demo::Args),
    /// Read config, keys, table and store as `run` would, and tell every fault.
    Check(ConfigArgs),
    /// Create, list, rotate, revoke and import keys.
    Keys {
        #[command(subcommand)]
        verb: keys::KeysCommand,
    },
    /// List accounts, set a plan or a limit.
    Accounts {
        #[command(subcommand)]
        verb: accounts::AccountsCommand,
    },
    /// Show what was spent this month.
    Usage(usage::Args),
    /// Begin a store on a server, or move one.
    Store {
        #[command(subcommand)]
        verb: store::StoreCommand,
    },
    /// Build, inspect, look up and compare tables.
    Table {
        #[command(subcommand)]
        verb: table::TableCommand,
    },
}

impl From<clap::Error> for Failure {
    /// What clap has to say is not always a failure: help and version are results.
    fn from(said: clap::Error) -> Failure {
        let code = u8::try_from(said.exit_code()).unwrap_or(2);
        // It repeats words of the command line, and one may be the address of a store.
        let text: String =
            said.render().to_string().split_inclusive(char::is_whitespace).map(shown).collect();
        match said.use_stderr() {
            true => Failure { lines: vec![text.trim_end().to_owned()], code },
            false => output::show(text).err().unwrap_or(Failure { lines: Vec::new(), code }),
        }
    }
}

/// Runs what the command line says.
pub fn main() -> ExitCode {
    let done = Command::try_parse().map_err(Failure::from).and_then(|command| match command.verb {
        Verb::Run(args) => run::run(args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Keys { verb } => keys::run(verb),
        Verb::Accounts { verb } => accounts::run(verb),
        Verb::Usage(args) => usage::run(&args),
        Verb::Store { verb } => store::run(verb),
        Verb::Table { verb } => table::run(verb),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.lines.iter().for_each(output::tell);
            ExitCode::from(failure.code)
        }
    }
}

/// A word of the command line, without what may be a password.
fn shown(word: &str) -> String {
    let bare = word.trim_matches(|c: char| c.is_whitespace() || "'\"`".contains(c));
    match bare.contains("://") || bare.contains(['@', '?']) {
        true => word.replacen(bare, &without_password(bare), 1),
        false => word.to_owned(),
    }
}
