//! The present time, for operations outside a running gateway.

use std::time::Duration;

use crate::config::StoreOptions;
use crate::quota::{BelievedTimeReport, find_believed_time};
use crate::store::{Store, StoreError};

/// Tells a store that was just opened the present time, and returns the problem of the clocks, if
/// there is one. The store then deletes nothing.
///
/// # Errors
/// If the store fails.
pub fn set_present_time(store: &mut Store) -> Result<Option<String>, StoreError> {
    let BelievedTimeReport { time, problem } = find_believed_time(Some(store))?;
    store.set_time(time);
    Ok(problem)
}

/// Returns the present time in Unix seconds, by what the store of a config knows. If the store does
/// not exist or fails, only the clock of this machine tells the time. Creates no store.
pub fn read_present_time(options: &StoreOptions, timeout: Duration) -> i64 {
    judge_present_time(options, timeout).map_or(0, |judged| judged.time.unix_now)
}

/// Like [`read_present_time`], with what is known of the time.
///
/// # Errors
/// Never: without a store, only the clock of this machine is judged.
pub fn judge_present_time(
    options: &StoreOptions,
    timeout: Duration,
) -> Result<BelievedTimeReport, StoreError> {
    let opened = Store::open_to_check(&options.url, &options.redis, timeout);
    let judged = opened.and_then(|mut store| find_believed_time(store.as_mut()));
    judged.or_else(|_| find_believed_time(None))
}

/// Returns the present time in Unix seconds by the clock of this machine alone.
pub(super) fn read_machine_time() -> i64 {
    find_believed_time(None).map_or(0, |judged| judged.time.unix_now)
}

/// Like [`read_present_time`], for a store that is open already. Returns also whether the store
/// answers.
pub(super) fn read_time_of_store(store: &mut Store) -> (i64, bool) {
    let judged = find_believed_time(Some(store));
    let answers = !matches!(judged, Err(StoreError::Unavailable { .. }));
    let judged = judged.or_else(|_| find_believed_time(None));
    (judged.map_or(0, |judged| judged.time.unix_now), answers)
}
