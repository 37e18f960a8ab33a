//! `--expires`: when a key expires.

use super::super::failure::CommandFailure;
use crate::config::parse_duration;

/// The expiry of a key: a time, or seconds from now.
pub(super) enum Expiry {
    /// Unix seconds.
    At(i64),
    /// Seconds from now.
    After(i64),
}

impl Expiry {
    pub(super) fn parse(text: &str) -> Result<Expiry, CommandFailure> {
        if let Some(duration) = parse_duration(text) {
            return Ok(Expiry::After(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)));
        }
        match text.parse::<jiff::Timestamp>() {
            Ok(time) => Ok(Expiry::At(time.as_second())),
            Err(_) => Err(CommandFailure::usage(format!(
                "--expires: expected 90d or a time such as 2027-01-01T00:00:00Z, but found {text:?}"
            ))),
        }
    }

    /// Returns the expiry in Unix seconds.
    pub(super) fn to_unix_seconds(&self, now: i64) -> i64 {
        match self {
            Expiry::At(time) => *time,
            Expiry::After(seconds) => now.saturating_add(*seconds),
        }
    }
}
