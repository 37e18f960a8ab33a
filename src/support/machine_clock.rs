//! The clock of this machine as it is: anybody can set it, and it may jump.
//!
//! Only this file reads it. What begins, ends or is deleted follows the believed time of `quota`,
//! and never this clock. Its readers are those that show a person what the machine's clock says,
//! and those that judge it. `tests/project/layers/clocks.rs` lists them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since 1970; zero if the clock shows an earlier time.
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the clock in Unix seconds; 0 if the clock shows a time before 1970.
pub fn machine_unix_now() -> i64 {
    since_epoch().as_secs().cast_signed()
}
