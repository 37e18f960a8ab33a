//! Opens the store for commands. A command must not change another store than the store of a
//! running gateway of its config.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::failure::CommandFailure;
use super::output::{print_message, print_warning};
use crate::config::{Config, StoreOptions};
use crate::management::{KnownOverrides, set_present_time};
use crate::model::believed_time::BelievedTime;
use crate::model::month::format_rfc3339;
use crate::process::runtime_dir::RuntimeDir;
use crate::process::served_store::{DifferentStore, ServedStore};
use crate::process::served_store_sockets::{LocalGateway, find_local_gateways};
use crate::store::{RingRows, Store, StoreError, StoreUrl, find_log_beside};
use crate::support::machine_clock::machine_unix_now;
use crate::table::TableInputs;

/// How long a command waits for the store, for example while a gateway has locked it.
pub const COMMAND_STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// A larger difference between the clocks of this machine and of the server gets a warning.
const MAX_CLOCK_SKEW_SECONDS: i64 = 60;

/// Opens the config's store for a change. The operations on the store wait up to
/// [`COMMAND_STORE_TIMEOUT`] for the lock of a gateway.
///
/// If the store is a file that does not exist, creates the file and prints its path: the command
/// may run in another directory than the gateway, and `store.url` may be a relative path.
///
/// Fails in these cases, among others:
/// - A gateway of the config runs, and the file of its store was moved away or deleted.
/// - A gateway of the config runs and serves another store: `store.url` has changed since the start
///   of the gateway, or the store was emptied or replaced.
/// - The server may evict what is written.
pub fn open_store(config: &Config) -> Result<Store, CommandFailure> {
    check_no_other_store_is_served(config)?;
    check_served_file_exists(config)?;
    let new_file = find_missing_store_file(config);
    let mut store = config.startup.store.open(COMMAND_STORE_TIMEOUT)?;
    raise_timeout_and_tell_time(&mut store)?;
    if let Some(path) = new_file {
        let shown = path.canonicalize().unwrap_or_else(|_| path.clone());
        print_message(format!("created the store {}", shown.display()));
    }
    store.check_still_safe()?;
    fail_if_different(find_other_store_id(config, &mut store)?)?;
    Ok(store)
}

/// Fails if a gateway of the config runs and serves a store at another address, or another file.
pub fn check_no_other_store_is_served(config: &Config) -> Result<(), CommandFailure> {
    fail_if_different(find_other_place(config)?)
}

fn fail_if_different(other: Option<DifferentStore>) -> Result<(), CommandFailure> {
    other.map_or(Ok(()), |other| Err(CommandFailure::failed(other.to_string())))
}

/// Finds how the config's store differs from the store that a running gateway of the config serves.
/// `store` is the config's store if it could be opened. Returns `None` if the gateway serves this
/// store, if none runs, and if this user may not see whether one runs: such a user may still read
/// the store.
pub fn find_difference_from_served(
    config: &Config,
    store: Option<&mut Store>,
) -> Option<DifferentStore> {
    let other_place = find_other_place(config).ok().flatten();
    other_place
        .or_else(|| find_missing_served_file(config).ok().flatten())
        .or_else(|| find_other_store_id(config, store?).ok().flatten())
}

/// Returns true if no command may open the config's store, not even to read it: the file of the
/// running gateway or its log is away, or the gateway's log is beside another file. SQLite would
/// begin a new log, or apply this log to the other file.
pub fn is_unsafe_to_open(config: &Config, other: &DifferentStore) -> bool {
    match other {
        DifferentStore::MissingFile { .. } | DifferentStore::MissingLog { .. } => true,
        DifferentStore::OtherFile { .. } => has_log_beside_file(config),
        _ => false,
    }
}

fn has_log_beside_file(config: &Config) -> bool {
    matches!(&config.startup.store.url, StoreUrl::Sqlite(path) if find_log_beside(path).is_some())
}

/// Finds a running gateway of the config that has read its keys from a store with another id.
fn find_other_store_id(
    config: &Config,
    store: &mut Store,
) -> Result<Option<DifferentStore>, CommandFailure> {
    let served = RunningGateways::find(config)?.served;
    if served.is_empty() {
        return Ok(None);
    }
    let found_id = store.ring_version()?.map(|version| version.store_id);
    Ok(served.iter().find_map(|it| it.check_id(found_id.as_deref()).err()))
}

/// Finds a running gateway of the config that serves a store at another address, or another file.
fn find_other_place(config: &Config) -> Result<Option<DifferentStore>, CommandFailure> {
    let served = RunningGateways::find(config)?.served;
    let mut others = served.iter().filter_map(|it| it.check_place(&config.startup.store).err());
    // `find_missing_served_file` tells of a missing file, even if the gateway has not told its
    // store.
    Ok(others.find(|it| !matches!(it, DifferentStore::MissingFile { .. })))
}

/// Fails if a gateway of the config runs, and the file of its store was moved away or deleted.
pub fn check_served_file_exists(config: &Config) -> Result<(), CommandFailure> {
    fail_if_different(find_missing_served_file(config)?)
}

/// Finds a running gateway of the config that serves a file that is missing.
fn find_missing_served_file(config: &Config) -> Result<Option<DifferentStore>, CommandFailure> {
    Ok(match find_missing_store_file(config) {
        Some(path) if is_gateway_running(config)? => {
            Some(DifferentStore::MissingFile { address: path.display().to_string() })
        }
        _ => None,
    })
}

/// Tells the store the present time. Prints a warning if there is a problem with the clocks.
pub fn tell_store_the_time(store: &mut Store) -> Result<(), CommandFailure> {
    let problem = set_present_time(store)?;
    warn_about_clocks(problem, store.now());
    Ok(())
}

/// Prints a warning if there is a problem with the clocks. `time` is the time that the command
/// uses.
pub fn warn_about_clocks(problem: Option<String>, time: BelievedTime) {
    if let Some(problem) = problem {
        let time = format_rfc3339(time.unix_now);
        print_warning(format!("{problem}; this command uses {time}"));
    }
}

/// Opens the config's store for a change of what it has. Fails in the cases of [`open_store`], and
/// if the store is a file that does not exist.
pub fn open_existing_store(config: &Config) -> Result<Store, CommandFailure> {
    check_no_other_store_is_served(config)?;
    let mut store = config.startup.store.open_existing(COMMAND_STORE_TIMEOUT)?;
    raise_timeout_and_tell_time(&mut store)?;
    store.check_still_safe()?;
    fail_if_different(find_other_store_id(config, &mut store)?)?;
    Ok(store)
}

fn raise_timeout_and_tell_time(store: &mut Store) -> Result<(), CommandFailure> {
    store.raise_busy_timeout()?;
    tell_store_the_time(store)
}

/// Opens the config's store for a command that only reads. If the store is a file that does not
/// exist, prints a warning and returns `None`: the command then shows an empty store. If a running
/// gateway of the config serves a store at another address, prints a warning and opens the config's
/// store, which an operator may want to see before a restart. Fails if the gateway's store is gone
/// from its address, or if another one is there.
pub fn open_store_to_read(config: &Config) -> Result<Option<Store>, CommandFailure> {
    Ok(open_store_and_find_difference(config)?.0)
}

/// Does what [`open_store_to_read`] does, and returns the difference between the stores of which it
/// has warned.
fn open_store_and_find_difference(
    config: &Config,
) -> Result<(Option<Store>, Option<DifferentStore>), CommandFailure> {
    let other = find_difference_from_served(config, None);
    match &other {
        Some(other @ DifferentStore::Address { .. }) => print_warning(other),
        Some(other) => return Err(CommandFailure::failed(other.to_string())),
        None => {}
    }
    // If the file was moved away without its log, opening the store tells it.
    if let Some(path) = find_missing_store_file(config).filter(|_| !has_log_beside_file(config)) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        print_warning(format!(
            "{}: expected a store, but found no file; `riskgate run` and `riskgate keys \
             create` create it",
            path.display()
        ));
        return Ok((None, other));
    }
    let StoreOptions { url, redis, .. } = &config.startup.store;
    let mut store = Store::open_to_read(url, redis, COMMAND_STORE_TIMEOUT)?;
    raise_timeout_and_tell_time(&mut store)?;
    if other.is_none() {
        fail_if_different(find_difference_from_served(config, Some(&mut store)))?;
    }
    Ok((Some(store), other))
}

/// Returns the inputs of the table as a gateway has them: those of the config, and the overrides of
/// the store. If the store fails, prints a warning and returns the inputs of the config alone.
pub fn read_table_inputs(config: &Config) -> TableInputs {
    let inputs = &config.reloadable.table;
    match KnownOverrides::read_of_config(&config.startup.store, COMMAND_STORE_TIMEOUT, inputs) {
        Ok(known) => known.add_to_copy_of(inputs),
        Err(error) => {
            print_warning(format!("expected the overrides of the store, but found {error}"));
            inputs.clone()
        }
    }
}

/// Returns the path of the config's store if it is a file that does not exist.
fn find_missing_store_file(config: &Config) -> Option<&PathBuf> {
    match &config.startup.store.url {
        StoreUrl::Sqlite(path) => match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => Some(path),
            // If the path can't be read, opening the store tells why.
            _ => None,
        },
        StoreUrl::Redis(_) => None,
    }
}

/// The gateways of a config that run on this machine, as far as a command can see them.
struct RunningGateways {
    is_any_running: bool,
    /// The stores of these gateways. A gateway that has not told its store is missing.
    served: Vec<ServedStore>,
}

impl RunningGateways {
    /// Looks in the runtime directory of the config, and among the gateways that serve the SQLite
    /// file of `store.url`. Each place may miss a gateway: a gateway may have no runtime directory,
    /// its store may be a Redis server, and `store.url` may have changed since its start.
    fn find(config: &Config) -> Result<RunningGateways, CommandFailure> {
        let runtime_dir = open_running_gateway_dir(config)?;
        let of_dir = runtime_dir.as_ref().and_then(RuntimeDir::read_served_store);
        let gateways = local_gateways(config)?.into_iter();
        let mut served: Vec<ServedStore> =
            gateways.filter(|it| !it.is_draining).map(|gateway| gateway.served).collect();
        let is_any_running = runtime_dir.is_some() || !served.is_empty();
        served.extend(of_dir);
        Ok(RunningGateways { is_any_running, served })
    }
}

fn local_gateways(config: &Config) -> Result<Vec<LocalGateway>, CommandFailure> {
    find_local_gateways(&config.startup.store).map_err(|error| {
        CommandFailure::failed(format!(
            "expected to see which gateways run on this machine, but found {error}"
        ))
    })
}

/// Returns the runtime directory of the config if a gateway runs from it. Fails if this user may
/// not see whether a gateway runs: the command could then change another store than the gateway's.
fn open_running_gateway_dir(config: &Config) -> Result<Option<RuntimeDir>, CommandFailure> {
    let Some(path) = &config.startup.runtime_dir else { return Ok(None) };
    RuntimeDir::open_if_claimed(path).map_err(|error| hidden_gateway_failure(path, &error))
}

fn hidden_gateway_failure(runtime_dir: &Path, error: &std::io::Error) -> CommandFailure {
    CommandFailure::failed(format!(
        "process.runtime_dir: expected to see whether a gateway runs, but found {error}: {}; run \
         the command as the user of the gateway",
        runtime_dir.display()
    ))
}

/// Returns true if the config's store is a file that does not exist.
pub fn is_store_missing(config: &Config) -> bool {
    find_missing_store_file(config).is_some()
}

/// Returns true if a gateway of this config runs on this machine, as far as a command can see it.
///
/// # Errors
/// Fails if this user may not see whether a gateway runs.
pub fn is_gateway_running(config: &Config) -> Result<bool, CommandFailure> {
    Ok(RunningGateways::find(config)?.is_any_running)
}

/// Returns true if a gateway of this config drains on this machine: it accepts no connections any
/// more, and has not ended yet. May also return true for a gateway that serves.
///
/// # Errors
/// Fails if this user may not see whether a gateway drains.
pub fn is_gateway_draining(config: &Config) -> Result<bool, CommandFailure> {
    if local_gateways(config)?.iter().any(|gateway| gateway.is_draining) {
        return Ok(true);
    }
    let Some(path) = &config.startup.runtime_dir else { return Ok(false) };
    RuntimeDir::has_serving_or_draining_process(path)
        .map_err(|error| hidden_gateway_failure(path, &error))
}

/// Reads all keys and all accounts of the config's store; none if the store does not exist.
pub fn read_ring_rows_of_config(config: &Config) -> Result<RingRows, CommandFailure> {
    match open_store_and_find_difference(config)? {
        (Some(mut store), other) => Ok(read_ring_rows(&mut store, other.as_ref())?),
        (None, _) => Ok(RingRows::default()),
    }
}

/// Reads all keys and all accounts from the store. `other` is how a running gateway's store differs
/// from this one. Prints a warning in these cases:
/// - The server is empty, and no running gateway expects its store on the server.
/// - The server has an entry among the keys and accounts that riskgate did not write.
/// - A row can't be read.
pub fn read_ring_rows(
    store: &mut Store,
    other: Option<&DifferentStore>,
) -> Result<RingRows, StoreError> {
    let rows = store.ring_rows()?.unwrap_or_else(|| {
        if other.is_none() {
            print_warning("the server is empty; the first key makes it a store");
        }
        RingRows::default()
    });
    store.describe_foreign_entries().into_iter().for_each(print_warning);
    for id in rows.damaged.key_digests_by_id.keys() {
        print_warning(format!(
            "key {id}: its row can't be read; calls with it are answered with 500"
        ));
    }
    for name in &rows.damaged.account_names {
        print_warning(format!(
            "account {name}: its row can't be read; its calls are answered with 500 until \
             `riskgate accounts set {name}` says its plan and limit"
        ));
    }
    Ok(rows)
}

/// Prints a warning if the clocks of the Redis server and of this machine differ by more than
/// [`MAX_CLOCK_SKEW_SECONDS`].
pub fn warn_about_clock_skew(store: &mut Store) -> Result<(), CommandFailure> {
    let Some(server) = store.server_unix_now()? else { return Ok(()) };
    let skew = server - machine_unix_now();
    if skew.abs() > MAX_CLOCK_SKEW_SECONDS {
        print_warning(format!("the server's clock is {skew} s from this machine's"));
    }
    Ok(())
}
