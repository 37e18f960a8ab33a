//! Opens the store for commands, and checks their arguments before they change anything.

use std::time::Duration;

use super::failure::CommandFailure;
use super::output;
use crate::config::Config;
use crate::keys::{ID_OR_ACCOUNT_FORMAT, is_valid_id_or_account};
use crate::quota::unix_now;
use crate::store::{RingRows, Store, StoreError, StoreUrl};

/// How long a command waits for the store, for example while a gateway has locked it.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// A larger difference between this machine's clock and the server's causes a warning.
const MAX_CLOCK_SKEW_SECONDS: i64 = 60;

/// Opens the config's store. Its operations wait up to [`STORE_TIMEOUT`] for a gateway's lock. If
/// the store is a file that does not exist, creates it and prints its path: the command may run in
/// another directory than the gateway, and `store.url` may be a relative path.
pub fn open_store(config: &Config) -> Result<Store, CommandFailure> {
    let new_file = match &config.store.url {
        StoreUrl::Sqlite(path) if !path.exists() => Some(path),
        _ => None,
    };
    let mut store = config.store.open(STORE_TIMEOUT)?;
    store.raise_busy_timeout()?;
    if let Some(path) = new_file {
        let shown = path.canonicalize().unwrap_or_else(|_| path.clone());
        output::print_message(format!("created the store {}", shown.display()));
    }
    Ok(store)
}

/// Reads all keys and all accounts from the store. Sorts the keys by age, the oldest first, and the
/// accounts by name. Prints a warning if the server is empty, for each entry that riskgate did not
/// write, and for each row that can't be read.
pub fn read_ring_rows(store: &mut Store) -> Result<RingRows, StoreError> {
    let mut rows = store.ring_rows()?.unwrap_or_else(|| {
        output::print_message("warning: the server is empty; the first key makes it a store");
        RingRows::default()
    });
    for entry in store.describe_foreign_entries() {
        output::print_message(format!("warning: {entry}"));
    }
    for id in rows.damaged.key_digests_by_id.keys() {
        output::print_message(format!(
            "warning: key {id}: its row can't be read; calls with it are answered with 500"
        ));
    }
    for name in &rows.damaged.account_names {
        output::print_message(format!(
            "warning: account {name}: its row can't be read; its calls are answered with 500 until \
             `riskgate accounts set {name}` says its plan and limit"
        ));
    }
    rows.keys.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    rows.accounts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(rows)
}

/// Returns the time by which gateways on this store count, in Unix seconds: the Redis server's, or
/// this machine's for SQLite. Prints a warning if the two clocks differ by more than a minute.
pub fn read_store_clock(store: &mut Store) -> Result<i64, CommandFailure> {
    let local = unix_now();
    let Some(server) = store.unix_now()? else { return Ok(local) };
    let skew = server - local;
    if skew.abs() > MAX_CLOCK_SKEW_SECONDS {
        output::print_message(format!(
            "warning: the server's clock is {skew} s from this machine's"
        ));
    }
    Ok(server)
}

/// Checks the name of an account. `what` is the argument that has it, for the message.
pub fn check_account_name(what: &str, name: &str) -> Result<(), CommandFailure> {
    match is_valid_id_or_account(name) {
        true => Ok(()),
        false => Err(CommandFailure::usage(format!(
            "{what}: expected {ID_OR_ACCOUNT_FORMAT}, but found {name:?}"
        ))),
    }
}

pub fn check_plan(config: &Config, plan: Option<&str>) -> Result<(), CommandFailure> {
    match plan {
        Some(plan) if !config.plans.contains_key(plan) => {
            let known: Vec<&str> = config.plans.keys().map(String::as_str).collect();
            let known = known.join(", ");
            Err(CommandFailure::usage(format!(
                "--plan: expected one of {known}, but found {plan:?}"
            )))
        }
        _ => Ok(()),
    }
}
