//! The command line: one file for each command or group of commands, and the files that they share.
//!
//! Owns the exit codes: 0 done, 1 failed, 2 wrong usage, 78 bad config or data. Commands write
//! results to standard output, and messages to standard error.

mod accounts;
mod admin_token;
mod audit;
mod author;
mod check;
mod config;
mod config_args;
mod decide;
mod demo;
mod doctor;
mod examples;
mod failure;
mod findings;
mod http_client;
mod init;
mod keys;
mod lookup_sources;
mod manual;
mod output;
mod ready;
mod run;
mod sign_ups;
mod standard_input;
mod store;
mod store_access;
mod table;
mod tips;
mod usage;

use std::process::ExitCode;

use clap::error::ContextKind;
use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};

use crate::config::redact_if_url;
use crate::keys::hide_keys;
use crate::process::server::survive_file_size_limit;
use config_args::ConfigArgs;
use examples::with_examples;
use failure::CommandFailure;
use tips::find_tip;

/// How risky is this e-mail domain? A gateway that answers, and guards the servers behind it.
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
    /// Write a config and make a first key: four questions, or options.
    Init(init::Args),
    /// Run a gateway and a stand-in upstream server on loopback, and print three requests to try.
    Demo(demo::Args),
    /// Ask the running gateway whether it may get traffic; fail if not.
    Ready(ready::Args),
    /// Check a running deployment from outside: ports, TLS, the proxy in front, clocks, store,
    /// feeds, DNS and servers. Fails if there is a fault.
    Doctor(doctor::Args),
    /// Read config, keys, table and store as `run` would, and print every fault.
    Check(ConfigArgs),
    /// Check the config, show what is in force, and print the schema of its settings.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Create, list, rotate, revoke and import keys.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// List accounts, set a plan or a limit.
    #[command(subcommand)]
    Accounts(accounts::AccountsCommand),
    /// Make a token for the admin API and the operator's page.
    #[command(subcommand)]
    AdminToken(admin_token::AdminTokenCommand),
    /// Show the calls of a month by account, or by day, route and key.
    Usage(usage::Args),
    /// Show who changed which key, account, override, config, table or month, and when.
    Audit(audit::Args),
    /// Check a store, initialize one on a server, copy, save or restore one, or repair its month.
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Decide a sign-up by the rules of the config, and say why. Nothing is counted.
    Decide(decide::Args),
    /// Show and delete the sign-ups of one person.
    #[command(subcommand)]
    SignUps(sign_ups::SignUpsCommand),
    /// Build, inspect, look up and compare tables, set overrides, and fetch feeds.
    #[command(subcommand)]
    Table(table::TableCommand),
    /// Print the completion script of a shell.
    Completions(manual::CompletionsArgs),
    /// Print the manual page.
    Man(manual::ManArgs),
}

impl From<clap::Error> for CommandFailure {
    /// Help and version are results, not failures.
    fn from(error: clap::Error) -> CommandFailure {
        let code = u8::try_from(error.exit_code()).unwrap_or(2);
        let tip = find_tip(&error, &Cli::command(), &read_arguments());
        let mut error = error;
        if tip.is_some() {
            use ContextKind::{Suggested, SuggestedArg, SuggestedSubcommand};
            // The tip knows what a word means. clap's own tips compare only the spelling.
            for kind in [Suggested, SuggestedArg, SuggestedSubcommand] {
                error.remove(kind);
            }
        }
        // clap repeats arguments, and one may be the URL of a store with a password.
        let text: String = error
            .render()
            .to_string()
            .split_inclusive(char::is_whitespace)
            .map(redact_word)
            .collect();
        match error.use_stderr() {
            true => {
                let text = text.trim_end().to_owned();
                let tip = tip.map(|tip| format!("  tip: {tip}"));
                CommandFailure {
                    message_lines: [Some(text), tip].into_iter().flatten().collect(),
                    exit_code: code,
                }
            }
            false => output::print_result(text)
                .err()
                .unwrap_or(CommandFailure { message_lines: Vec::new(), exit_code: code }),
        }
    }
}

/// Builds the parser of the command line, with the examples of commands in their help.
fn build_command() -> clap::Command {
    with_examples(Cli::command(), "")
}

fn parse_arguments() -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&build_command().try_get_matches()?)
}

/// Fails if an argument looks like an API key, because lists of processes and the history of a
/// shell show arguments. `keys revoke` and `keys rotate` are exempt: given a key, they fail and
/// name its id.
fn refuse_keys_in_arguments(command: &Command, words: &[String]) -> Result<(), CommandFailure> {
    let takes_id = matches!(
        command,
        Command::Keys(keys::KeysCommand::Revoke { .. } | keys::KeysCommand::Rotate { .. })
    );
    match !takes_id && words.iter().any(|word| hide_keys(word) != *word) {
        true => Err(CommandFailure::usage(
            "expected no API key among the arguments, because lists of processes show them, but \
             found one; `riskgate keys list` shows accounts, and the ids of keys",
        )),
        false => Ok(()),
    }
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    survive_file_size_limit();
    let outcome = parse_arguments().map_err(CommandFailure::from).and_then(|cli| {
        refuse_keys_in_arguments(&cli.command, &read_arguments())?;
        run_command(cli.command)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.message_lines.iter().for_each(output::print_failure);
            ExitCode::from(failure.exit_code)
        }
    }
}

fn run_command(command: Command) -> Result<(), CommandFailure> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Init(args) => init::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Ready(args) => ready::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Config(command) => config::run(command),
        Command::Keys(command) => keys::run(command),
        Command::Accounts(command) => accounts::run(command),
        Command::AdminToken(command) => admin_token::run(command),
        Command::Decide(args) => decide::run(&args),
        Command::SignUps(command) => sign_ups::run(&command),
        Command::Usage(args) => usage::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Store(command) => store::run(command),
        Command::Table(command) => table::run(command),
        Command::Completions(args) => manual::print_completions(&args, build_command()),
        Command::Man(args) => manual::print_man_page(&args, build_command()),
    }
}

/// Returns the arguments of the process, without the name of the program.
fn read_arguments() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Returns an argument without the password that a URL may contain.
fn redact_word(word: &str) -> String {
    let trimmed = word.trim_matches(|c: char| c.is_whitespace() || "'\"`".contains(c));
    word.replacen(trimmed, &redact_if_url(trimmed), 1)
}
