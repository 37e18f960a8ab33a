//! The clock of this machine as it is: anybody can set it, and it may jump.
//!
//! Only this file asks the system for this clock. What begins, ends or is deleted follows the
//! believed time of `quota`, and never this clock. Two kinds of callers read this clock: those that
//! show it to a person, and those that judge it. `tests/project/layers/clocks.rs` lists the
//! callers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since 1970; zero if the clock shows an earlier time.
pub fn machine_time_since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the clock in Unix seconds; 0 if the clock shows a time before 1970.
pub fn machine_unix_now() -> i64 {
    machine_time_since_epoch().as_secs().cast_signed()
}
