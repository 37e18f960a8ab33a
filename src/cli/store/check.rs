//! `riskgate store check`: checks what gateways rely on in a store.

use std::time::Duration;

use crate::cli::config_args::ConfigArgs;
use crate::cli::failure::CommandFailure;
use crate::cli::findings::print_findings;
use crate::cli::store_access::{
    COMMAND_STORE_TIMEOUT, find_difference_from_served, is_store_missing, is_unsafe_to_open,
};
use crate::config::{Config, StoreOptions};
use crate::store::{Finding, FindingLevel, MODE_SUBJECT, Store, StoreError};
use crate::support::counted::CountedNoun;
use crate::support::machine_clock::machine_unix_now;

/// A larger difference between the clocks of the server and of this machine gets a warning.
const MAX_STORE_CLOCK_DIFFERENCE_SECONDS: u64 = 2;

/// Checks the store of a config, and prints the findings. Fails if a finding is a fault.
pub(super) fn run(config: &ConfigArgs, json: bool) -> Result<(), CommandFailure> {
    print_findings(&check_store(&config.read_config()?, COMMAND_STORE_TIMEOUT), json, "the store")
}

/// Checks the store of a config. A store that can't be opened or checked is one fault. `timeout`
/// limits each operation.
pub fn check_store(config: &Config, timeout: Duration) -> Vec<Finding> {
    open_and_check(config, timeout).unwrap_or_else(|error| {
        let fault = fault_of_error("store", &error);
        vec![match is_store_missing(config) {
            true => {
                let advice = "look whether store.url is right; riskgate run and riskgate keys \
                              create make a store there";
                Finding { advice: Some(advice.to_owned()), ..fault }
            }
            false => fault,
        }]
    })
}

/// Makes the finding of a failed operation, with advice about this kind of error.
fn fault_of_error(subject: &'static str, error: &StoreError) -> Finding {
    let advice = match error {
        StoreError::InvalidUrl { .. } => Some("correct store.url"),
        StoreError::Sqlite { .. } => {
            Some("see that this user may write the file and its folder, and that the disk works")
        }
        StoreError::Unavailable { .. } => Some(
            "see that the server or disk of store.url works, can be reached and lets riskgate in",
        ),
        StoreError::InvalidReply { .. } => {
            Some("see that nothing but riskgate writes to the store")
        }
        // The text says what was expected, and how to repair what was found.
        StoreError::Unusable { .. } | StoreError::OtherPlan { .. } | StoreError::Conflict(_) => {
            None
        }
    };
    let (found, advice) = (error.to_string(), advice.map(str::to_owned));
    Finding { subject: subject.into(), level: FindingLevel::Fault, found, advice }
}

fn open_and_check(config: &Config, timeout: Duration) -> Result<Vec<Finding>, StoreError> {
    if let Some(other) = find_difference_from_served(config, None)
        && is_unsafe_to_open(config, &other)
    {
        return Err(StoreError::Conflict(other.to_string()));
    }
    let StoreOptions { url, redis, .. } = &config.startup.store;
    let mut store = Store::open_to_read(url, redis, timeout)?;
    let mut findings = store.check_deployment(config.startup.store.deadline)?;
    if findings.iter().any(|finding| finding.subject == MODE_SUBJECT) {
        // A Sentinel, or a server that has only a part of the slots, answers nothing else.
        return Ok(findings);
    }
    findings.extend(check_clock(&mut store)?);
    findings.push(check_overrides(&mut store));
    if let Some(other) = find_difference_from_served(config, Some(&mut store)) {
        let advice = "a running gateway must have the store of its config";
        findings.push(Finding::warning("running gateway", other.to_string(), advice));
    }
    Ok(findings)
}

/// Counts the overrides. An override that can't be read is a fault.
fn check_overrides(store: &mut Store) -> Finding {
    match store.stored_overrides() {
        Err(error) => fault_of_error("overrides", &error),
        Ok(stored) => {
            let stored = stored.unwrap_or_default();
            match stored.damaged.first() {
                Some(name) => {
                    let found = format!("expected rows that can be read, but found {name}");
                    let advice = "set this override again with riskgate table allow or deny, or \
                                  restore a backup";
                    Finding::fault("overrides", found, advice)
                }
                None => {
                    let count = CountedNoun(stored.rows.len(), "override");
                    Finding::good("overrides", format!("{count} in the store"))
                }
            }
        }
    }
}

/// Compares the clock of a server with the clock of this machine. `None` for a file.
fn check_clock(store: &mut Store) -> Result<Option<Finding>, StoreError> {
    let Some(of_server) = store.server_unix_now()? else { return Ok(None) };
    let difference = of_server.abs_diff(machine_unix_now());
    let found = format!("differs from the clock of this machine by {difference} s");
    Ok(Some(match difference > MAX_STORE_CLOCK_DIFFERENCE_SECONDS {
        false => Finding::good("clock", found),
        true => {
            let advice = "synchronize both clocks: all nodes count in the month of the server";
            Finding::warning("clock", found, advice)
        }
    }))
}
