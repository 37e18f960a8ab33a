//! The rules for a store's grants, probes and totals, checked before the ledger uses them.
//!
//! A reply that breaks a rule is an error of the store: for example, a row was damaged, or another
//! program answered. The ledger uses nothing of such a reply. This module does no I/O.

use std::time::Duration;

use super::error::StoreError;
use super::ledger::{Grant, LeaseReport, Probe};
use crate::model::month::Month;

/// No store recovers longer than this from a data loss.
const MAX_RECOVERY_LEFT: Duration = Duration::from_secs(60);

/// Checks a grant against the report that it answers. Numbers of 2^63 or more are an error, so that
/// the ledger can add the others without an overflow.
pub fn check_grant(report: &LeaseReport, grant: &Grant) -> Result<(), StoreError> {
    let LeaseReport { account, target, floor, limit, known, .. } = report;
    let Grant { own_leased, others_leased, others_spent, revision, is_recovering } = *grant;
    let leased_by_all = own_leased.saturating_add(others_leased);
    let is_over_limit = limit.is_some_and(|limit| own_leased > *floor && leased_by_all > limit);
    let expected = if [leased_by_all, others_spent, revision].iter().any(|n| !fits_in_i64(*n)) {
        "numbers below 2^63"
    } else if own_leased < *floor {
        "at least the calls that this node reported"
    } else if own_leased > *target {
        "at most the calls that this node asked for"
    } else if is_over_limit {
        "no more calls than the limit"
    } else if revision < known.revision && !is_recovering {
        "the revision that it acknowledged, or a later one"
    } else {
        return Ok(());
    };
    let (subject, found) = (format!("account {account}"), format!("{grant:?}"));
    Err(StoreError::InvalidReply { subject, expected, found })
}

/// Checks the reply to a probe.
pub(super) fn check_probe(probe: Probe) -> Result<Probe, StoreError> {
    let is_valid_time = |time| (0..Month::LAST.end()).contains(&time);
    if probe.unix_now.is_none_or(is_valid_time) && probe.recovery_left <= MAX_RECOVERY_LEFT {
        return Ok(probe);
    }
    let expected = "a time from 1970 to 2341, and a recovery of at most a minute";
    let (subject, found) = ("probing the store".to_owned(), format!("{probe:?}"));
    Err(StoreError::InvalidReply { subject, expected, found })
}

/// Checks that a total of calls is below 2^63.
pub(super) fn check_total_below_2_to_63(account: &str, total: u64) -> Result<u64, StoreError> {
    fits_in_i64(total).then_some(total).ok_or_else(|| StoreError::InvalidReply {
        subject: format!("account {account}"),
        expected: "a number below 2^63",
        found: total.to_string(),
    })
}

/// Returns true if the number is below 2^63. SQLite counts in signed 64-bit integers.
fn fits_in_i64(number: u64) -> bool {
    i64::try_from(number).is_ok()
}

#[cfg(test)]
mod tests;
