//! Opens the store for commands.

use std::time::Duration;

use super::failure::CommandFailure;
use super::output;
use crate::config::Config;
use crate::management::set_present_time;
use crate::model::month::format_rfc3339;
use crate::store::{RingRows, Store, StoreError, StoreUrl};
use crate::support::machine_clock::machine_unix_now;

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
    tell_time(&mut store);
    if let Some(path) = new_file {
        let shown = path.canonicalize().unwrap_or_else(|_| path.clone());
        output::print_message(format!("created the store {}", shown.display()));
    }
    Ok(store)
}

/// Tells the store the present time. Prints a warning if the clocks contradict it. If the store does
/// not answer, the operation of the command says so.
fn tell_time(store: &mut Store) {
    if let Ok(Some(problem)) = set_present_time(store) {
        let time = format_rfc3339(store.now().unix_now);
        output::print_message(format!("warning: {problem}; this command uses {time}"));
    }
}

/// Reads all keys and all accounts from the store. Prints a warning if the server is empty, for each
/// entry that riskgate did not write, and for each row that can't be read.
pub fn read_ring_rows(store: &mut Store) -> Result<RingRows, StoreError> {
    let rows = store.ring_rows()?.unwrap_or_else(|| {
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
    Ok(rows)
}

/// Prints a warning if the clock of the Redis server and that of this machine differ by more than a
/// minute.
pub fn warn_about_clock_skew(store: &mut Store) -> Result<(), CommandFailure> {
    let Some(server) = store.unix_now()? else { return Ok(()) };
    let skew = server - machine_unix_now();
    if skew.abs() > MAX_CLOCK_SKEW_SECONDS {
        output::print_message(format!(
            "warning: the server's clock is {skew} s from this machine's"
        ));
    }
    Ok(())
}
