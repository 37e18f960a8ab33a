//! `riskgate store check`: what is wrong with a store before it hurts.

use serde_json::json;

use crate::cli::config_args::ConfigArgs;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print_result;
use crate::cli::store_access::STORE_TIMEOUT;
use crate::config::Config;
use crate::store::{Finding, FindingLevel, Store, StoreError};
use crate::support::machine_clock::machine_unix_now;

/// A clock that differs by more seconds than that is told.
const MAX_CLOCK_DIFFERENCE: u64 = 2;

/// Checks the store of a config, and prints what was found. Fails if there is a fault.
pub(super) fn check(config: &ConfigArgs, json: bool) -> Result<(), CommandFailure> {
    let config = config.read_config()?;
    let findings = find_all(&config).unwrap_or_else(|error| {
        let advice = "look whether store.url is right, and whether its server or file is there";
        vec![Finding::fault("store", error.to_string(), advice)]
    });
    let text = match json {
        true => {
            let objects = findings.iter().map(|it| {
                json!({
                    "subject": it.subject, "level": it.level.as_str(), "found": it.found,
                    "advice": it.advice,
                })
            });
            format!("{}\n", json!({ "findings": objects.collect::<Vec<_>>() }))
        }
        false => findings.iter().map(show).collect(),
    };
    print_result(text)?;
    match findings.iter().filter(|it| it.level == FindingLevel::Fault).count() {
        0 => Ok(()),
        1 => Err(CommandFailure::failed("the store has a fault")),
        count => Err(CommandFailure::failed(format!("the store has {count} faults"))),
    }
}

fn find_all(config: &Config) -> Result<Vec<Finding>, StoreError> {
    let mut store = config.startup.store.open_existing(STORE_TIMEOUT)?;
    let mut findings = store.check_deployment(config.startup.store.deadline)?;
    findings.extend(check_clock(&mut store)?);
    Ok(findings)
}

/// Compares the clock of a server with that of this machine.
fn check_clock(store: &mut Store) -> Result<Option<Finding>, StoreError> {
    let Some(of_server) = store.unix_now()? else { return Ok(None) };
    let difference = of_server.abs_diff(machine_unix_now());
    let found = format!("differs from the clock of this machine by {difference} s");
    Ok(Some(match difference > MAX_CLOCK_DIFFERENCE {
        false => Finding::ok("clock", found),
        true => {
            let advice = "synchronize both clocks: all nodes count in the month of the server";
            Finding::warning("clock", found, advice)
        }
    }))
}

fn show(finding: &Finding) -> String {
    let Finding { subject, level, found, advice } = finding;
    let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
    format!("{:<8} {subject}: {found}{advice}\n", level.as_str())
}
