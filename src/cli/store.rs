//! `riskgate store`: initializes, checks, copies, saves and restores stores, and repairs the month
//! of a store.

mod backup;
mod check;
mod contents;

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use super::author::find_command_author;
use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{print_warning, report_change};
use super::store_access::{
    COMMAND_STORE_TIMEOUT, is_gateway_draining, is_gateway_running, open_existing_store, open_store,
};
use crate::config::{Config, TextKind, guess_text, hint_for_store};
use crate::model::month::Month;
use crate::store::{MonthRepair, RedisOptions, Store, StoreContents, StoreError, StoreUrl};
use crate::support::counted::CountedNoun;
use crate::support::machine_clock::machine_unix_now;

pub use check::check_store;

use contents::{describe_url, open_and_read_contents, report_copy, write_contents};

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Initialize the server of store.url as a store, so that gateways accept the server before it
    /// has a key. Does nothing if the server is a store already.
    Init(StoreArgs),
    /// Check what a gateway relies on: version, eviction, persistence, replicas, Sentinels, clock,
    /// latency and the rights of the user of a server; the file of an SQLite store. Changes nothing
    /// but a Redis key of its own, which soon expires. Fails if there is a fault.
    Check(StoreArgs),
    /// Copy a store into an empty one: accounts, keys, overrides, usage, the audit, the top counts,
    /// the quota events, the inbox secret and sign-ups. Stop the gateways on FROM first: calls that
    /// they count during the copy would be missing. FROM is not changed. On a server, no gateway
    /// uses TO before the copy is complete. An interrupted copy can be run again; docs/redis.md
    /// names an exception for a Cluster.
    Copy {
        /// The config whose store.tls_ca and store.wait_replicas apply to Redis servers.
        #[command(flatten)]
        args: StoreArgs,
        /// The store to read, as in store.url: sqlite:PATH, redis://…, redis+sentinel://…
        /// or redis+cluster://….
        from: String,
        /// The store to fill, which must have no keys, accounts, overrides, usage or sign-ups.
        to: String,
    },
    /// Save the store in a file: accounts, keys, overrides, the audit, usage, the top counts, the
    /// quota events, the inbox secret and sign-ups. Gateways may run meanwhile, and keys, accounts,
    /// overrides and audit are saved as of one moment. The command reads the new file back, and
    /// then replaces an older backup by it.
    Backup {
        #[command(flatten)]
        args: StoreArgs,
        /// The file to write.
        file: PathBuf,
    },
    /// Fill the empty store of store.url from a backup. Stop all gateways first. On a server,
    /// no gateway uses the store before it is complete. An interrupted restore can be run again. A
    /// backup of an empty store is refused.
    Restore {
        #[command(flatten)]
        args: StoreArgs,
        /// The file that `riskgate store backup` has written.
        file: PathBuf,
    },
    /// Return to a month after a wrong clock moved the store to a later one. Stop all gateways
    /// first. Keeps the usage of MONTH, and deletes the usage of later months and the time that the
    /// gateways believed. Fails if the clock of this machine or of the server shows another month.
    RepairMonth {
        #[command(flatten)]
        args: StoreArgs,
        /// The actual month: 2026-11.
        #[arg(value_parser = parse_month)]
        month: Month,
    },
}

/// The arguments of all these commands.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

pub fn parse_month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| {
        let is_month = |it: &str| Month::parse(it).is_some();
        let meant = guess_text(text, TextKind::Time, is_month).or_else(|| guess_named_month(text));
        let hint = meant.map(|it| format!("; write {it}")).unwrap_or_default();
        format!("expected a month as in 2026-11{hint}")
    })
}

/// Returns the month that a text with the name of a month means, such as `2026-11` for `nov 2026`.
/// Without a year, it is the last such month that has begun.
fn guess_named_month(text: &str) -> Option<String> {
    const NAMES: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let text = text.to_ascii_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() >= 3);
    let number_of = |word: &str| NAMES.iter().position(|name| name.starts_with(word));
    let number = words.into_iter().find_map(number_of)? + 1;
    let year = text.split(|c: char| !c.is_ascii_digit()).find_map(|it| match it.len() {
        4 => it.parse::<u32>().ok(),
        _ => None,
    });
    let present = Month::containing(machine_unix_now()).to_string();
    let (present_year, present_number) = present.split_once('-')?;
    let is_to_come = number > present_number.parse().ok()?;
    let year = year.or_else(|| Some(present_year.parse::<u32>().ok()? - u32::from(is_to_come)))?;
    Some(format!("{year:04}-{number:02}"))
}

pub fn run(command: StoreCommand) -> Result<(), CommandFailure> {
    match command {
        StoreCommand::Init(StoreArgs { config, json }) => init(&config, json),
        StoreCommand::Check(StoreArgs { config, json }) => check::run(&config, json),
        StoreCommand::Copy { args: StoreArgs { config, json }, from, to } => {
            let (from, to) = (parse_url("FROM", &from)?, parse_url("TO", &to)?);
            let config = config.read_config()?;
            // A running gateway may have another file open, which was moved away. It would go on
            // with that file.
            if matches!(to, StoreUrl::Sqlite(_)) && config.startup.store.is_at(&to) {
                check_no_gateway_runs(&config)?;
            }
            let options = &config.startup.store.redis;
            if matches!(from, StoreUrl::Sqlite(_)) {
                check_is_store(&from, options, None)?;
            }
            report_copy("copied", &copy(options, &from, &to)?, json)
        }
        StoreCommand::Backup { args, file } => backup::run(&args.config, &file, args.json),
        StoreCommand::Restore { args, file } => restore(&args.config, file, args.json),
        StoreCommand::RepairMonth { args, month } => repair_month(&args.config, month, args.json),
    }
}

fn init(config: &ConfigArgs, json: bool) -> Result<(), CommandFailure> {
    let config = config.read_config()?;
    // Fails if a gateway of the config runs and has read its keys from a store with another id.
    let mut store = open_store(&config)?;
    store.mark_as_store(&find_command_author())?;
    let version = store
        .ring_version()?
        .ok_or_else(|| CommandFailure::failed("expected a store, found none"))?;
    let done = format!("store {} at version {} of its keys", version.store_id, version.version);
    let object = json!({ "store_id": version.store_id, "version": version.version });
    report_change(&done, &object, json)
}

/// What `store repair-month` says about the believed time, which it deletes in any case.
const FORGOTTEN_TIME: &str =
    "the time that gateways believed is deleted: the next gateway believes the clock at its start";

fn repair_month(config: &ConfigArgs, month: Month, json: bool) -> Result<(), CommandFailure> {
    let config = config.read_config()?;
    check_no_gateway_runs(&config)?;
    let mut store = open_existing_store(&config)?;
    // With a wrong clock, the next gateway would move the store to the wrong month again.
    let clocks =
        [("this machine's", Some(machine_unix_now())), ("the server's", store.server_unix_now()?)];
    for (whose, now) in clocks {
        let shown = now.map_or(month, Month::containing);
        if shown != month {
            let fault = format!("expected a clock that shows {month}, but found {shown} on");
            return Err(CommandFailure::failed(format!("{fault} {whose}; set it right first")));
        }
    }
    let MonthRepair { latest_month_before: previous, deleted_totals: dropped } =
        store.repair_month(&find_command_author(), month)?;
    let is_later = previous.is_some_and(|previous| previous > month);
    let changed = is_later || dropped > 0;
    let counts = CountedNoun(usize::try_from(dropped).unwrap_or(usize::MAX), "count");
    let repaired = match previous {
        _ if changed && !is_later => format!("{counts} of later months deleted"),
        Some(previous) if changed => {
            format!("the store counts in {month} again, and not in {previous}; {counts} deleted")
        }
        _ => format!("nothing to repair: the store counts in no later month than {month}"),
    };
    let done = format!("{repaired}; {FORGOTTEN_TIME}");
    let object = json!({
        "month": month.to_string(), "was": previous.map(|month| month.to_string()),
        "changed": changed, "dropped": dropped,
    });
    report_change(&done, &object, json)
}

/// Fails if a gateway of this config runs or drains on this machine. Its last reports would change
/// the store after the command.
fn check_no_gateway_runs(config: &Config) -> Result<(), CommandFailure> {
    let found = match (is_gateway_running(config)?, is_gateway_draining(config)?) {
        (true, _) => "one; stop it, and repeat the command",
        (false, true) => "one that is about to end; repeat the command once it has ended",
        (false, false) => return Ok(()),
    };
    Err(CommandFailure::failed(format!("expected no running gateway, but found {found}")))
}

fn parse_url(what: &str, text: &str) -> Result<StoreUrl, CommandFailure> {
    StoreUrl::parse(text).map_err(|error| {
        let hint = hint_for_store(text).map(|it| format!("; {it}")).unwrap_or_default();
        CommandFailure::usage(format!("{what}: {error}{hint}"))
    })
}

fn restore(config: &ConfigArgs, file: PathBuf, json: bool) -> Result<(), CommandFailure> {
    let config = config.read_config()?;
    check_no_gateway_runs(&config)?;
    let (from, options) = (StoreUrl::Sqlite(file), &config.startup.store.redis);
    check_is_store(&from, options, Some("a file that `riskgate store backup` has written"))?;
    let contents = copy(options, &from, &config.startup.store.url)?;
    report_copy("restored", &contents, json)
}

/// Fails unless the file to copy is a store. If `expected` is given, the fault says only what was
/// expected and found.
fn check_is_store(
    file: &StoreUrl,
    options: &RedisOptions,
    expected: Option<&'static str>,
) -> Result<(), CommandFailure> {
    let opened = Store::open_to_copy(file, options, COMMAND_STORE_TIMEOUT);
    let Err(error) = opened.map_err(StoreError::without_corruption_advice) else { return Ok(()) };
    match (error, expected) {
        (StoreError::Unusable { location, found, .. }, Some(expected)) => {
            let found = found.split("; ").next().unwrap_or_default().to_owned();
            Err(StoreError::Unusable { location, expected, found }.into())
        }
        (error, _) => Err(error.into()),
    }
}

/// Copies a store into an empty one, and returns what was copied. Fails if the store to copy is
/// empty.
fn copy(
    options: &RedisOptions,
    from: &StoreUrl,
    to: &StoreUrl,
) -> Result<StoreContents, CommandFailure> {
    let (contents, time) = open_and_read_contents(from, options)?;
    if contents.is_empty() {
        return Err(CommandFailure::failed(format!(
            "FROM: expected a store with keys, accounts, usage or sign-ups, but found an empty one: {}; \
             nothing was written",
            describe_url(from)
        )));
    }
    if contents.ring.keys.is_empty() && contents.ring.accounts.is_empty() {
        print_warning(format!("{} has no keys and no accounts", describe_url(from)));
    }
    write_contents(&contents, time, to, options)?;
    Ok(contents)
}
