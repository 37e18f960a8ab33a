//! `riskgate check`: reads everything as `run` would, and starts nothing.

use super::config_args::{ConfigArgs, describe_source};
use super::failure::CommandFailure;
use super::findings::describe_finding;
use super::output::{print_message, print_warning};
use super::store_access::{
    COMMAND_STORE_TIMEOUT, find_difference_from_served, is_unsafe_to_open, read_ring_rows,
};
use crate::config::Config;
use crate::keys::{KeyRing, RingError, locate_plan_fault, warn_of_unfit_accounts};
use crate::management::read_present_time;
use crate::process::served_store::DifferentStore;
use crate::process::server::{
    StartupInputs, check_log_limits_and_upstreams, check_runtime_dir,
    warnings_of_invalid_certificates, warnings_of_unreachable_certificates,
};
use crate::store::{FindingLevel, RingRows, Store, StoreError};
use crate::support::certificates::CertificateSet;
use crate::support::counted::CountedNoun;

pub fn run(args: &ConfigArgs) -> Result<(), CommandFailure> {
    let inputs = StartupInputs::read(&args.config_sources()).map_err(CommandFailure::config)?;
    let (_, upstreams) = check_log_limits_and_upstreams(&inputs.config)?;
    let options = &inputs.config.startup.store;
    let (rows, other) = read_rows_and_find_difference(&inputs.config)?;
    let is_store_missing = rows.is_none();
    let rows = rows.unwrap_or_default();
    let now = read_present_time(options, COMMAND_STORE_TIMEOUT);
    let (declared, plans) = (&inputs.declared_keys, &inputs.config.reloadable.plans);
    KeyRing::check_key_file(&rows, declared, plans).map_err(|faults| {
        let file = inputs.config.reloadable.key_file.as_ref();
        let describe = |fault: &RingError| {
            let located = file.and_then(|path| locate_plan_fault(path, fault));
            let file = || file.map(|path| format!("{}: ", path.display())).unwrap_or_default();
            located.map_or_else(|| format!("{}{fault}", file()), |it| it.to_text())
        };
        CommandFailure::config(faults.iter().map(describe).collect())
    })?;
    let from = describe_source(&inputs.config);
    print_message(format!(
        "{from}: good; store {}, table {} with {}, {}",
        options.shown_address(),
        inputs.table.version(),
        CountedNoun(inputs.table.row_count(), "row"),
        CountedNoun(rows.keys.len() + inputs.declared_keys.len(), "key"),
    ));
    other.into_iter().for_each(print_warning);
    if is_store_missing {
        print_message(format!(
            "note: there is no store at {} yet; `riskgate run` and `riskgate keys create` make it",
            options.shown_address()
        ));
    }
    print_warnings_of_files(&inputs, now);
    inputs.config.reloadable.feeds.find_list_faults().into_iter().for_each(print_warning);
    // Faults of single keys or accounts don't keep the gateway from starting.
    for fault in KeyRing::find_faults(&rows, declared, plans) {
        print_warning(format!("{fault}; its calls are answered with 500"));
    }
    warn_of_unfit_accounts(declared).into_iter().for_each(print_warning);
    let has_origins = rows.keys.iter().any(|key| !key.origins.is_empty())
        || declared.iter().any(|declared| !declared.key.origins.is_empty());
    inputs.config.warnings(has_origins).into_iter().for_each(print_warning);
    for problem in upstreams.list_name_problems() {
        print_warning(format!("upstream.servers: {problem}"));
    }
    inputs.table.warnings(now).into_iter().for_each(print_warning);
    Ok(())
}

/// Reads the keys and accounts of the store; `None` if the store is a file that does not exist yet.
/// Also returns how a running gateway's store differs from this store. Fails if that gateway's
/// file, its `-wal` or its `-shm` was moved away or deleted, because a restart would lose what only
/// the gateway still has, and if a log is beside another file than the gateway's.
fn read_rows_and_find_difference(
    config: &Config,
) -> Result<(Option<RingRows>, Option<DifferentStore>), CommandFailure> {
    let options = &config.startup.store;
    let mut other = find_difference_from_served(config, None);
    if let Some(other) = other.as_ref().filter(|other| is_unsafe_to_open(config, other)) {
        return Err(CommandFailure::config(vec![other.to_string()]));
    }
    let store_failure = |error| store_failure(config, error);
    // A check creates no store: `run` would create a missing SQLite file.
    let opened = Store::open_to_check(&options.url, &options.redis, COMMAND_STORE_TIMEOUT);
    let Some(mut store) = opened.map_err(store_failure)? else { return Ok((None, other)) };
    // If the server does not answer, each further operation would wait for as long.
    if let Err(error @ StoreError::Unavailable { .. }) = store.server_unix_now() {
        return Err(store_failure(error));
    }
    store.check_safe_if_reachable().map_err(store_failure)?;
    store.check_takes_writes().map_err(store_failure)?;
    check_deployment(config, &mut store)?;
    other = other.or_else(|| find_difference_from_served(config, Some(&mut store)));
    let rows = read_ring_rows(&mut store, other.as_ref()).map_err(store_failure)?;
    Ok((Some(rows), other))
}

/// Fails if a gateway could not use the store as it is. Prints a warning for each fault with which
/// a gateway runs.
fn check_deployment(config: &Config, store: &mut Store) -> Result<(), CommandFailure> {
    if !store.is_server() {
        // A file was checked already.
        return Ok(());
    }
    let options = &config.startup.store;
    let findings = store.check_deployment(options.deadline);
    let findings = findings.map_err(|error| store_failure(config, error))?;
    let address = options.shown_address();
    let lines_of = |level: FindingLevel| -> Vec<String> {
        let of_level = findings.iter().filter(|finding| finding.level == level);
        of_level.map(|finding| format!("{address}: {}", describe_finding(finding))).collect()
    };
    lines_of(FindingLevel::ToleratedFault).into_iter().for_each(print_warning);
    let faults = lines_of(FindingLevel::Fault);
    match faults.is_empty() {
        true => Ok(()),
        false => Err(CommandFailure::config(faults)),
    }
}

/// Prints warnings about the runtime directory and the certificates. `now` is in Unix seconds.
fn print_warnings_of_files(inputs: &StartupInputs, now: i64) {
    check_runtime_dir(&inputs.config).into_iter().for_each(print_warning);
    let certificates = inputs.certificates.as_ref().map(CertificateSet::descriptions);
    let certificates = certificates.unwrap_or_default();
    let invalid = warnings_of_invalid_certificates(&inputs.config, certificates, now);
    let unreachable = warnings_of_unreachable_certificates(&inputs.config, certificates);
    invalid.into_iter().chain(unreachable).for_each(print_warning);
}

/// Makes the failure of `riskgate check` for a store that can't be used: exit code 1 if the store
/// does not answer or refuses writes, else 78. If a Redis server does not answer or refuses writes,
/// `riskgate run` starts all the same.
fn store_failure(config: &Config, error: StoreError) -> CommandFailure {
    let text = config.file_setting_places.place_store_error(&error);
    match error {
        StoreError::Unavailable { .. } => CommandFailure::failed(text),
        _ => CommandFailure::config(vec![text]),
    }
}
