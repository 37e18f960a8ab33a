//! The present time, for operations outside a running gateway.

use std::time::Duration;

use crate::config::StoreOptions;
use crate::quota::{BelievedTimeReport, find_believed_time, find_machine_time};
use crate::store::{Store, StoreError};

/// Tells a store that was just opened the present time. The store deletes nothing by this time,
/// because nobody has watched the clocks. Returns the problem of the clocks, if there is one.
///
/// # Errors
/// If the store fails.
pub fn set_present_time(store: &mut Store) -> Result<Option<String>, StoreError> {
    let BelievedTimeReport { time, problem } = find_believed_time(store)?;
    store.set_time(time);
    Ok(problem)
}

/// Returns the present time in Unix seconds, as [`judge_present_time`] does.
pub fn read_present_time(options: &StoreOptions, timeout: Duration) -> i64 {
    judge_present_time(options, timeout).time.unix_now
}

/// Returns the present time, by the clocks and by what the store of a config knows, and the problem
/// of the clocks. If the store does not exist or fails, only the clock of this machine tells the
/// time. Creates no store.
pub fn judge_present_time(options: &StoreOptions, timeout: Duration) -> BelievedTimeReport {
    let opened = Store::open_to_check(&options.url, &options.redis, timeout).ok().flatten();
    let judged = opened.and_then(|mut store| find_believed_time(&mut store).ok());
    judged.unwrap_or_else(find_machine_time)
}

/// Returns the present time in Unix seconds by the clock of this machine alone.
pub(super) fn read_machine_time() -> i64 {
    find_machine_time().time.unix_now
}

/// Returns the present time as [`read_present_time`] does, for a store that is open already, and
/// whether the store answers.
pub(super) fn read_time_of_store(store: &mut Store) -> (i64, bool) {
    let judged = find_believed_time(store);
    let answers = !matches!(judged, Err(StoreError::Unavailable { .. }));
    (judged.unwrap_or_else(|_| find_machine_time()).time.unix_now, answers)
}
