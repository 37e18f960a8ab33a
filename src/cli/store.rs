//! `riskgate store`: begin a store on a server, move one, or repair its month.

use clap::Subcommand;
use serde_json::json;

use super::config_args::ConfigArgs;
use super::failure::CommandFailure;
use super::output::{print_message, print_result_of_change};
use super::store_access::{STORE_TIMEOUT, open_store};
use crate::model::month::Month;
use crate::process::upgrade::RuntimeDir;
use crate::quota::unix_now;
use crate::store::{RedisOptions, RepairedMonth, Store, StoreContents, StoreUrl};

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Make the server of store.url a store, so that gateways take it without a key in it; does
    /// nothing where it is one.
    Init {
        #[command(flatten)]
        config: ConfigArgs,
        /// Print an object.
        #[arg(long)]
        json: bool,
    },
    /// Copy a store into an empty one: accounts, keys, this month's numbers and the top counts.
    /// Stop the gateways on FROM first: what they count during the copy would be missing. FROM
    /// stays as it is. Until all is copied no gateway takes anything from TO, and a copy that was
    /// interrupted can be run again.
    Copy {
        /// store.tls_ca and store.wait_replicas of this config hold for servers.
        #[command(flatten)]
        config: ConfigArgs,
        /// The store to read: sqlite:PATH, redis://… or rediss://….
        from: String,
        /// The store to fill, without keys, accounts or numbers.
        to: String,
        /// Print an object.
        #[arg(long)]
        json: bool,
    },
    /// Go back to a month, after a wrong clock led the store to a later one. Stop all gateways
    /// first. The month's numbers are as they were; what was counted in later months is dropped.
    /// Does nothing where the store's month is this one, and nothing against the clocks.
    RepairMonth {
        #[command(flatten)]
        config: ConfigArgs,
        /// The month that it really is: 2026-11.
        #[arg(value_parser = parse_month)]
        month: Month,
        /// Print an object.
        #[arg(long)]
        json: bool,
    },
}

fn parse_month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| "expected a month as in 2026-11".to_owned())
}

pub fn run(command: StoreCommand) -> Result<(), CommandFailure> {
    match command {
        StoreCommand::Init { config, json } => init(&config, json),
        StoreCommand::Copy { config, from, to, json } => {
            copy(&config.read()?.store.redis, &from, &to, json)
        }
        StoreCommand::RepairMonth { config, month, json } => repair_month(&config, month, json),
    }
}

fn init(config: &ConfigArgs, json: bool) -> Result<(), CommandFailure> {
    let mut store = open_store(&config.read()?)?;
    store.check_usable()?;
    store.mark_as_store()?;
    let mark = store
        .ring_version()?
        .ok_or_else(|| CommandFailure::failed("expected a store, found none"))?;
    let done = format!("store {} at version {} of its keys", mark.store_id, mark.version);
    let object = json!({ "store_id": mark.store_id, "version": mark.version });
    match json {
        true => print_result_of_change(&done, format!("{object}\n"))?,
        false => print_message(done),
    }
    Ok(())
}

fn repair_month(config: &ConfigArgs, month: Month, json: bool) -> Result<(), CommandFailure> {
    let config = config.read()?;
    let folder = config.runtime_dir.as_ref().filter(|path| path.is_dir());
    if folder.and_then(|path| RuntimeDir::open(path).ok()).is_some_and(|folder| folder.is_claimed())
    {
        return Err(CommandFailure::failed("expected no running gateway, but found one"));
    }
    let mut store = open_store(&config)?;
    // A clock that is wrong would lead the next gateway to the wrong month again.
    let clocks = [("this machine's", Some(unix_now())), ("the server's", store.unix_now()?)];
    for (whose, now) in clocks {
        let shown = now.map_or(month, Month::containing);
        if shown != month {
            let fault = format!("expected a clock that shows {month}, but found {shown} on");
            return Err(CommandFailure::failed(format!("{fault} {whose}; set it right first")));
        }
    }
    let RepairedMonth { previous: was, dropped } = store.repair_month(month)?;
    let is_later = was.is_some_and(|was| was > month);
    let changed = is_later || dropped > 0;
    let done = match was {
        _ if changed && !is_later => format!("{dropped} numbers of later months dropped"),
        Some(was) if changed => {
            format!(
                "the store counts in {month} again, and not in {was}; {dropped} numbers dropped"
            )
        }
        _ => format!("nothing to repair: the store counts in no later month than {month}"),
    };
    let object = json!({
        "month": month.to_string(), "was": was.map(|was| was.to_string()),
        "changed": changed, "dropped": dropped,
    });
    match json {
        true => print_result_of_change(&done, format!("{object}\n"))?,
        false => print_message(done),
    }
    Ok(())
}

fn copy(options: &RedisOptions, from: &str, to: &str, json: bool) -> Result<(), CommandFailure> {
    let parse = |what: &str, text: &str| {
        StoreUrl::parse(text).map_err(|error| CommandFailure::usage(format!("{what}: {error}")))
    };
    let (from, to) = (parse("FROM", from)?, parse("TO", to)?);
    let contents = read_contents(&mut Store::open_existing(&from, options, STORE_TIMEOUT)?)?;
    let mut target = Store::open(&to, options, STORE_TIMEOUT)?;
    target.check_usable()?;
    target.set_busy_timeout()?;
    target.fill_from(&contents)?;
    let StoreContents { ring, month, usage, top } = contents;
    let (keys, accounts, numbers, top) =
        (ring.keys.len(), ring.accounts.len(), usage.len(), top.len());
    let done = format!(
        "copied {keys} keys, {accounts} accounts, the numbers of {numbers} accounts in {month}, \
         {top} top counts"
    );
    let object = json!({
        "keys": keys, "accounts": accounts, "month": month.to_string(),
        "usage": numbers, "top": top,
    });
    match json {
        true => print_result_of_change(&done, format!("{object}\n"))?,
        false => print_message(done),
    }
    Ok(())
}

fn read_contents(store: &mut Store) -> Result<StoreContents, CommandFailure> {
    store.check_usable()?;
    store.set_busy_timeout()?;
    let nothing = || CommandFailure::failed("FROM: expected a store, but found an empty server");
    let ring = store.ring_rows()?.ok_or_else(nothing)?;
    // A copy holds all, or there is none.
    let unreadable = ring.damaged.keys.keys().chain(&ring.damaged.accounts).next();
    if let Some(name) = unreadable {
        return Err(CommandFailure::failed(format!(
            "FROM: expected rows that can be read, but found another for {name}"
        )));
    }
    // Not by this machine's clock: it may be wrong, and would lead the new store to its month.
    let month = store.latest_month()?.unwrap_or(Month::FIRST);
    let usage = store.usage(month, None)?;
    if let Some(row) = usage.iter().find(|row| row.is_damaged) {
        return Err(CommandFailure::failed(format!(
            "FROM: expected numbers that can be read, but found others for {}",
            row.account
        )));
    }
    Ok(StoreContents { ring, month, usage, top: store.top_rows()? })
}
