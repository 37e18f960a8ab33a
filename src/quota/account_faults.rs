//! The accounts whose reports fail although the store answers: the store can't read their totals,
//! has lost them, or grants calls against a rule of the ledger.
//!
//! If such a report is about the current month, it counts as unanswered. For a moment, `on_failure`
//! then decides about the calls of the account that its lease does not hold.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::sync::lock_ignoring_poison;
use crate::model::month::Month;
use crate::store::{Grant, LeaseReport, ReportOutcome, StoreError, check_grant};
use crate::support::counted::CountedNoun;

/// The period in which at most [`MAX_LOGGED_FAULTS`] faults are logged, in milliseconds. Without
/// this bound, a fault that begins and ends with each report could fill the log.
const FAULT_LOG_PERIOD_MS: u64 = 60_000;
const MAX_LOGGED_FAULTS: u32 = 100;
/// A fault that no report has shown for this long, in milliseconds, counts as over. While a fault
/// lasts and the store answers, the account is reported every second.
const FAULT_FORGOTTEN_AFTER_MS: u64 = 60_000;
/// The most faults that [`AccountFaults::describe_present_faults`] names.
const MAX_LISTED_ACCOUNT_FAULTS: usize = 10;

#[derive(Default)]
pub(super) struct AccountFaults(Mutex<State>);

#[derive(Default)]
struct State {
    /// The present faults, by account and by the month of the report, each with the uptime of the
    /// ledger in milliseconds at which a report last showed it.
    faults: BTreeMap<(String, Month), (String, u64)>,
    /// Uptime of the ledger in milliseconds at which the present [`FAULT_LOG_PERIOD_MS`] began.
    log_period_began_ms: u64,
    logged_in_period: u32,
}

impl AccountFaults {
    /// Returns the grant if the store gave one that keeps the rules of the ledger, else `None`.
    /// Logs a fault when it begins, up to [`MAX_LOGGED_FAULTS`] in a period.
    pub(super) fn keep_valid_grant(
        &self,
        report: &LeaseReport,
        outcome: ReportOutcome,
        uptime_ms: u64,
    ) -> Option<Grant> {
        let mut state = lock_ignoring_poison(&self.0);
        match outcome.and_then(|grant| check_grant(report, &grant).map(|()| grant)) {
            Ok(grant) => {
                if !state.faults.is_empty() {
                    state.faults.remove(&(report.account.clone(), report.month));
                }
                Some(grant)
            }
            Err(error) => {
                state.record_fault(report, &error, uptime_ms);
                None
            }
        }
    }

    /// The present faults, each with its account: the first ten, and how many follow.
    pub(super) fn describe_present_faults(&self, uptime_ms: u64) -> Vec<String> {
        let mut state = lock_ignoring_poison(&self.0);
        state.faults.retain(|_, (_, shown_at_ms)| !is_fault_over(*shown_at_ms, uptime_ms));
        let texts = state.faults.values().map(|(text, _)| text.clone());
        let mut listed: Vec<String> = texts.take(MAX_LISTED_ACCOUNT_FAULTS).collect();
        if let more @ 1.. = state.faults.len() - listed.len() {
            listed.push(CountedNoun(more, "more such fault").to_string());
        }
        listed
    }
}

fn is_fault_over(shown_at_ms: u64, uptime_ms: u64) -> bool {
    uptime_ms >= shown_at_ms + FAULT_FORGOTTEN_AFTER_MS
}

impl State {
    fn record_fault(&mut self, report: &LeaseReport, error: &StoreError, uptime_ms: u64) {
        let account = &report.account;
        let text = match error {
            StoreError::InvalidReply { .. } => error.to_string(),
            _ => format!("account {account}: {error}"),
        };
        if uptime_ms >= self.log_period_began_ms + FAULT_LOG_PERIOD_MS {
            (self.log_period_began_ms, self.logged_in_period) = (uptime_ms, 0);
        }
        let fault = (text.clone(), uptime_ms);
        let before = self.faults.insert((account.clone(), report.month), fault);
        let is_new = before.is_none_or(|(_, shown_at_ms)| is_fault_over(shown_at_ms, uptime_ms));
        if is_new && self.logged_in_period < MAX_LOGGED_FAULTS {
            self.logged_in_period += 1;
            log::error!("{text}");
        }
    }
}

#[cfg(test)]
mod tests;
