//! The clock of this machine as it is: anybody can set it, and it may jump.
//!
//! Only this file asks the system for this clock. In a gateway, what begins, ends or is deleted
//! follows the believed time of `quota`, and never this clock. `tests/project/layers/clocks.rs`
//! lists who reads this clock, and why.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since 1970; zero if the clock shows an earlier time.
pub fn machine_time_since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the clock in Unix seconds; 0 if the clock shows a time before 1970.
pub fn machine_unix_now() -> i64 {
    machine_time_since_epoch().as_secs().cast_signed()
}
