//! `riskgate store`: initialize a store on a server, copy, save or restore one, or repair its
//! month.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use super::author::command_author;
use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{print_message, print_progress, print_result_of_change};
use super::store_access::{
    STORE_TIMEOUT, is_gateway_running, open_existing_store, open_or_create_store,
};
use crate::config::Config;
use crate::management::{read_daily_usage_of_month, set_present_time};
use crate::model::month::Month;
use crate::store::{AuditRecord, RedisOptions, RepairedMonth, Store, StoreContents, StoreUrl};
use crate::support::machine_clock::machine_unix_now;
use crate::support::regular_file::is_same_file;

/// `copy` moves the usage by day of the present month and of this many months before.
const KEPT_MONTHS_OF_DAILY_USAGE: u16 = 13;

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Initialize the server of store.url as a store, so that gateways accept the server before it
    /// has a key. Does nothing if the server is a store already.
    Init {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Copy a store into an empty one: accounts, keys, this month's usage and the top counts. Stop
    /// the gateways on FROM first: calls that they count during the copy would be missing. FROM
    /// is not changed. No gateway uses TO before the copy is complete, and an interrupted copy can
    /// be run again.
    Copy {
        /// The config whose store.tls_ca and store.wait_replicas apply to Redis servers.
        #[command(flatten)]
        config: ConfigArgs,
        /// The store to read: sqlite:PATH, redis://… or rediss://….
        from: String,
        /// The store to fill, which must have no keys, accounts or usage.
        to: String,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Save the store in a file: accounts, keys, this month's usage and the top counts. Gateways may
    /// run meanwhile. The file is complete or not there: an older one stays until then.
    Backup {
        #[command(flatten)]
        config: ConfigArgs,
        /// The file to write.
        file: PathBuf,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Fill the empty store of store.url from a backup. Stop all gateways first. No gateway uses the
    /// store before it is complete, and an interrupted restore can be run again.
    Restore {
        #[command(flatten)]
        config: ConfigArgs,
        /// The file that `riskgate store backup` has written.
        file: PathBuf,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Return to a month after a wrong clock moved the store to a later one. Stop all gateways
    /// first. Keeps the usage of MONTH and drops the usage of later months. Does nothing if the
    /// store counts in no later month. Fails if the clock of this machine or of the server shows
    /// another month.
    RepairMonth {
        #[command(flatten)]
        config: ConfigArgs,
        /// The actual month: 2026-11.
        #[arg(value_parser = parse_month)]
        month: Month,
        /// Print a JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub fn parse_month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| "expected a month as in 2026-11".to_owned())
}

pub fn run(command: StoreCommand) -> Result<(), CommandFailure> {
    match command {
        StoreCommand::Init { config, json } => init(&config, json),
        StoreCommand::Copy { config, from, to, json } => {
            let (from, to) = (parse_url("FROM", &from)?, parse_url("TO", &to)?);
            let redis = config.read_config()?.store.redis;
            report_copy("copied", &copy(&redis, &from, &to)?, json)
        }
        StoreCommand::Backup { config, file, json } => backup(&config, &file, json),
        StoreCommand::Restore { config, file, json } => restore(&config, file, json),
        StoreCommand::RepairMonth { config, month, json } => repair_month(&config, month, json),
    }
}

fn init(config: &ConfigArgs, json: bool) -> Result<(), CommandFailure> {
    let mut store = open_or_create_store(&config.read_config()?)?;
    store.check_safe_if_reachable()?;
    store.changes_by(&command_author()).mark_as_store()?;
    let version = store
        .ring_version()?
        .ok_or_else(|| CommandFailure::failed("expected a store, found none"))?;
    let done = format!("store {} at version {} of its keys", version.store_id, version.version);
    let object = json!({ "store_id": version.store_id, "version": version.version });
    match json {
        true => print_result_of_change(&done, format!("{object}\n"))?,
        false => print_message(done),
    }
    Ok(())
}

fn repair_month(config: &ConfigArgs, month: Month, json: bool) -> Result<(), CommandFailure> {
    let config = config.read_config()?;
    check_no_gateway_runs(&config)?;
    let mut store = open_existing_store(&config)?;
    // With a wrong clock the next gateway would move the store to the wrong month again.
    let clocks =
        [("this machine's", Some(machine_unix_now())), ("the server's", store.unix_now()?)];
    for (whose, now) in clocks {
        let shown = now.map_or(month, Month::containing);
        if shown != month {
            let fault = format!("expected a clock that shows {month}, but found {shown} on");
            return Err(CommandFailure::failed(format!("{fault} {whose}; set it right first")));
        }
    }
    let RepairedMonth { latest_month_before: previous, deleted_totals: dropped } =
        store.changes_by(&command_author()).repair_month(month)?;
    let is_later = previous.is_some_and(|previous| previous > month);
    let changed = is_later || dropped > 0;
    let done = match previous {
        _ if changed && !is_later => format!("{dropped} numbers of later months dropped"),
        Some(previous) if changed => {
            format!(
                "the store counts in {month} again, and not in {previous}; {dropped} numbers dropped"
            )
        }
        _ => format!("nothing to repair: the store counts in no later month than {month}"),
    };
    let object = json!({
        "month": month.to_string(), "was": previous.map(|month| month.to_string()),
        "changed": changed, "dropped": dropped,
    });
    match json {
        true => print_result_of_change(&done, format!("{object}\n"))?,
        false => print_message(done),
    }
    Ok(())
}

/// Fails if a gateway of this config runs on this machine.
fn check_no_gateway_runs(config: &Config) -> Result<(), CommandFailure> {
    match is_gateway_running(config) {
        true => Err(CommandFailure::failed("expected no running gateway, but found one")),
        false => Ok(()),
    }
}

fn parse_url(what: &str, text: &str) -> Result<StoreUrl, CommandFailure> {
    StoreUrl::parse(text).map_err(|error| CommandFailure::usage(format!("{what}: {error}")))
}

/// Copies the store into a new file, which then replaces the older backup, if there is one.
fn backup(config: &ConfigArgs, file: &Path, json: bool) -> Result<(), CommandFailure> {
    let options = config.read_config()?.store;
    if let StoreUrl::Sqlite(store) = &options.url
        && is_same_file(file, store)
    {
        let file = file.display();
        let expected = "expected another file than the store";
        return Err(CommandFailure::failed(format!("{file}: {expected}, but found the store")));
    }
    if let Some(found) = describe_other_file(file) {
        let file = file.display();
        let expected = "expected no file, or an older backup";
        return Err(CommandFailure::failed(format!("{file}: {expected}, but found {found}")));
    }
    let unfinished = file.with_added_extension("partial");
    let failed = |path: &Path, error: io::Error| {
        CommandFailure::failed(format!(
            "{}: expected to write it, but found {error}",
            path.display()
        ))
    };
    // An interrupted backup may have left these files.
    for leftover in ["", "-wal", "-shm"] {
        let mut path = unfinished.clone().into_os_string();
        path.push(leftover);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(Path::new(&path), error));
            }
            _ => {}
        }
    }
    let contents = copy(&options.redis, &options.url, &StoreUrl::Sqlite(unfinished.clone()))?;
    let moved = File::open(&unfinished)
        .and_then(|written| written.sync_all())
        .and_then(|()| fs::rename(&unfinished, file));
    moved.map_err(|error| failed(file, error))?;
    report_copy("saved", &contents, json)
}

/// Describes what is at this path, unless it is nothing or an SQLite file, as a backup is.
fn describe_other_file(path: &Path) -> Option<String> {
    const SQLITE_START: &[u8] = b"SQLite format 3\0";
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    if !kind.is_file() {
        return Some("something that is no regular file".to_owned());
    }
    let mut start = [0; SQLITE_START.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    match read {
        Ok(()) if start == SQLITE_START => None,
        _ => Some("another file".to_owned()),
    }
}

fn restore(config: &ConfigArgs, file: PathBuf, json: bool) -> Result<(), CommandFailure> {
    let config = config.read_config()?;
    check_no_gateway_runs(&config)?;
    let contents = copy(&config.store.redis, &StoreUrl::Sqlite(file), &config.store.url)?;
    report_copy("restored", &contents, json)
}

/// Copies a store into an empty one, and returns what was copied.
fn copy(
    options: &RedisOptions,
    from: &StoreUrl,
    to: &StoreUrl,
) -> Result<StoreContents, CommandFailure> {
    print_progress("reading the store");
    let mut source = Store::open_existing(from, options, STORE_TIMEOUT)?;
    let contents = read_contents(&mut source)?;
    set_present_time(&mut source)?;
    print_progress(format!("writing {} keys", contents.ring.keys.len()));
    let mut target = Store::open(to, options, STORE_TIMEOUT)?;
    target.check_safe_if_reachable()?;
    target.raise_busy_timeout()?;
    target.set_time(source.now());
    target.changes_by(&command_author()).fill_empty_store(&contents)?;
    Ok(contents)
}

fn report_copy(done: &str, contents: &StoreContents, json: bool) -> Result<(), CommandFailure> {
    let StoreContents { ring, usage_month: month, usage, top_rows: top, audit, .. } = contents;
    let (keys, accounts, numbers, top, records) =
        (ring.keys.len(), ring.accounts.len(), usage.len(), top.len(), audit.len());
    let done = format!(
        "{done} {keys} keys, {accounts} accounts, the numbers of {numbers} accounts in {month}, \
         {top} top counts, {records} records of the audit"
    );
    let object = json!({
        "keys": keys, "accounts": accounts, "month": month.to_string(),
        "usage": numbers, "top": top, "audit": records,
    });
    match json {
        true => print_result_of_change(&done, format!("{object}\n"))?,
        false => print_message(done),
    }
    Ok(())
}

/// Reads everything that `copy` writes to the target. Fails if a row is damaged, because `copy`
/// never leaves a row out.
fn read_contents(store: &mut Store) -> Result<StoreContents, CommandFailure> {
    store.check_safe_if_reachable()?;
    store.raise_busy_timeout()?;
    let is_empty = || CommandFailure::failed("FROM: expected a store, but found an empty server");
    let ring = store.ring_rows()?.ok_or_else(is_empty)?;
    let unreadable =
        ring.damaged.key_digests_by_id.keys().chain(&ring.damaged.account_names).next();
    if let Some(name) = unreadable {
        return Err(CommandFailure::failed(format!(
            "FROM: expected rows that can be read, but found another for {name}"
        )));
    }
    // The month is read from the source, because a wrong clock of this machine would move the
    // target to a wrong month.
    let month = store.latest_month()?.unwrap_or(Month::FIRST);
    let usage = store.read_usage(month, None)?;
    if let Some(row) = usage.iter().find(|row| row.is_damaged) {
        return Err(CommandFailure::failed(format!(
            "FROM: expected numbers that can be read, but found others for {}",
            row.account
        )));
    }
    let months = (0..=KEPT_MONTHS_OF_DAILY_USAGE).rev();
    let months = months.filter_map(|age| Month::from_number(month.number().checked_sub(age)?));
    let mut daily_usage = Vec::new();
    for month in months {
        let rows = read_daily_usage_of_month(store, month, None)?;
        daily_usage.extend((!rows.is_empty()).then_some((month, rows)));
    }
    let audit = read_whole_audit(store)?;
    let (top_rows, quota_events) = (store.top_rows()?, store.quota_events_to_copy(month)?);
    Ok(StoreContents {
        ring,
        usage_month: month,
        usage,
        top_rows,
        audit,
        daily_usage,
        quota_events,
    })
}

/// Reads all records of the audit, a page at a time, so that no page takes long.
fn read_whole_audit(store: &mut Store) -> Result<Vec<AuditRecord>, CommandFailure> {
    const RECORDS_PER_PAGE: usize = 5_000;
    let mut records: Vec<AuditRecord> = Vec::new();
    loop {
        let after_id = records.last().map(|record| record.id.clone());
        let page = store.read_audit_after(after_id.as_deref(), RECORDS_PER_PAGE)?;
        let is_last = page.len() < RECORDS_PER_PAGE;
        records.extend(page);
        if is_last {
            return Ok(records);
        }
    }
}
