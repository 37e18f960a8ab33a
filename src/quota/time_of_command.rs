//! The believed time of a process without a ledger: a command, and a gateway before its start.

use super::calendar::Calendar;
use super::clock::{BootClock, boot_id_problem, find_present_time};
use super::known_time::KnownTime;
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::month::Month;
use crate::store::{Store, StoreError};
use crate::support::machine_clock::machine_unix_now;

/// A believed time, and what is wrong with the clocks.
#[derive(Clone, Debug)]
pub struct BelievedTimeReport {
    /// The time; never [`TimeTrust::Settled`], because nobody has watched the clocks for long.
    pub time: BelievedTime,
    /// The problem that an operator should know of; `None` if there is no problem.
    pub problem: Option<String>,
}

/// Judges the clocks by what the store knows, as a gateway does at its start.
///
/// # Errors
/// If the store fails.
pub fn find_believed_time(store: &mut Store) -> Result<BelievedTimeReport, StoreError> {
    let (boottime, machine_now) = (BootClock::new().seconds(), machine_unix_now());
    let mut known = read_known_time(store)?;
    if known.is_empty() {
        // No gateway has used the store yet. The time of the latest audit record has passed.
        known.past = store.latest_audit_time()?.filter(|at| *at > 0);
    }
    let calendar = Calendar::without_log(known, machine_now, boottime);
    if let Some(server_now) = store.server_unix_now()? {
        calendar.observe_store_clock(server_now, machine_now, boottime);
    }
    Ok(report_believed_time(&calendar, boottime))
}

/// Judges the clock of this machine without a store.
pub fn find_machine_time() -> BelievedTimeReport {
    let boottime = BootClock::new().seconds();
    let calendar = Calendar::without_log(KnownTime::default(), machine_unix_now(), boottime);
    report_believed_time(&calendar, boottime)
}

fn report_believed_time(calendar: &Calendar, boottime: i64) -> BelievedTimeReport {
    let time = calendar.believed_time(boottime);
    let trust = if time.is_known() { TimeTrust::Known } else { TimeTrust::LowerBound };
    let time = BelievedTime { trust, ..time };
    BelievedTimeReport { time, problem: calendar.clock_problem(boottime).or_else(boot_id_problem) }
}

/// Reads what the store knows of the time.
pub(super) fn read_known_time(store: &mut Store) -> Result<KnownTime, StoreError> {
    // A node that has not read the server's clock yet writes month 0, which is no month.
    let latest_counted_month = store.latest_month()?.filter(|month| *month > Month::FIRST);
    let anchor = store.time_anchor()?;
    let present = anchor.as_ref().and_then(find_present_time);
    Ok(KnownTime { latest_counted_month, past: anchor.map(|anchor| anchor.unix_now), present })
}
