//! The command line: one file a verb.
//!
//! Owns words and exit codes: 0 done, 1 failed, 2 usage, 78 bad config or data. Whatever is
//! asked for goes to stdout, words about it to stderr.

mod accounts;
mod check;
mod demo;
mod keys;
mod output;
mod run;
mod store;
mod table;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::config::{Config, ConfigFile, Overrides};
use crate::keys::{NAME_FORM, is_name};
use crate::process::server::StartError;
use crate::quota::unix_now;
use crate::store::{RingRows, Store, StoreError, without_password};

/// Bad config or data (sysexits' EX_CONFIG).
const BAD_CONFIG: u8 = 78;
/// How long a command waits for a gateway's lock on the store.
const PATIENCE: Duration = Duration::from_secs(5);

/// More seconds between this machine's clock and the server's are told.
const CLOCKS_APART: i64 = 60;

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

/// Where the config is.
#[derive(Clone, Debug, Default, clap::Args)]
struct ConfigArgs {
    /// The config file; conf/riskgate.toml if it is there, else built-in defaults.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// What a command that failed leaves behind: its lines and its exit code.
struct Failure {
    lines: Vec<String>,
    code: u8,
}

impl Failure {
    fn failed(line: impl Into<String>) -> Failure {
        Failure { lines: vec![line.into()], code: 1 }
    }

    fn usage(line: impl Into<String>) -> Failure {
        Failure { lines: vec![line.into()], code: 2 }
    }

    fn config(lines: Vec<String>) -> Failure {
        Failure { lines, code: BAD_CONFIG }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        match error {
            StartError::Config(lines) => Failure::config(lines),
            StartError::Failed(line) => Failure::failed(line),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let code = match error {
            StoreError::Url { .. } | StoreError::Unusable { .. } => BAD_CONFIG,
            StoreError::Failed { .. } | StoreError::Unanswered { .. } | StoreError::Conflict(_) => {
                1
            }
        };
        Failure { lines: vec![error.to_string()], code }
    }
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

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::failed(error.to_string())
    }
}

impl ConfigArgs {
    fn read(&self) -> Result<Config, Failure> {
        Config::read(&self.overrides()).map_err(Failure::config)
    }

    fn overrides(&self) -> Overrides {
        let file = self.config.clone().map_or_else(ConfigFile::usual, ConfigFile::At);
        Overrides { file, flags: Vec::new() }
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

fn store_of(config: &Config) -> Result<Store, Failure> {
    let mut store = config.store.open(PATIENCE)?;
    store.be_patient()?;
    Ok(store)
}

/// All keys and accounts, by age and by name: a store tells them in no order. A server that is no
/// store yet has none, and that is said; so is what can't be read.
fn rows_of(store: &mut Store) -> Result<RingRows, StoreError> {
    let mut rows = store.ring_rows()?.unwrap_or_else(|| {
        output::tell("warning: the server is empty; the first key makes it a store");
        RingRows::default()
    });
    for entry in store.foreign_entries() {
        output::tell(format!("warning: {entry}"));
    }
    for id in rows.damaged.keys.keys() {
        output::tell(format!(
            "warning: key {id}: its row can't be read; calls with it are answered with 500"
        ));
    }
    for name in &rows.damaged.accounts {
        output::tell(format!(
            "warning: account {name}: its row can't be read; its calls are answered with 500 until \
             `riskgate accounts set {name}` says its plan and limit"
        ));
    }
    rows.keys.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    rows.accounts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

/// The time that gateways on this store go by: the server's, where there is one.
fn now_of(store: &mut Store) -> Result<i64, Failure> {
    let ours = unix_now();
    let Some(theirs) = store.unix_now()? else { return Ok(ours) };
    let apart = theirs - ours;
    if apart.abs() > CLOCKS_APART {
        output::tell(format!("warning: the server's clock is {apart} s from this machine's"));
    }
    Ok(theirs)
}

fn checked_name(what: &str, name: &str) -> Result<(), Failure> {
    match is_name(name) {
        true => Ok(()),
        false => Err(Failure::usage(format!("{what}: expected {NAME_FORM}, but found {name:?}"))),
    }
}

fn known_plan(config: &Config, plan: Option<&str>) -> Result<(), Failure> {
    match plan {
        Some(plan) if !config.plans.contains_key(plan) => {
            let known: Vec<&str> = config.plans.keys().map(String::as_str).collect();
            let known = known.join(", ");
            Err(Failure::usage(format!("--plan: expected one of {known}, but found {plan:?}")))
        }
        _ => Ok(()),
    }
}
