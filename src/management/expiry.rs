//! When a key expires, as an operator writes it.

use super::fault::ManagementFault;
use crate::config::parse_duration;

/// The expiry of a key: a time, or seconds from now.
pub enum Expiry {
    /// Unix seconds.
    At(i64),
    /// Seconds from now.
    After(i64),
}

impl Expiry {
    /// Parses `90d`, or a time in RFC 3339.
    ///
    /// # Errors
    /// Returns a fault of the value `expires` for any other text.
    pub fn parse(text: &str) -> Result<Expiry, ManagementFault> {
        if let Some(duration) = parse_duration(text) {
            return Ok(Expiry::After(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)));
        }
        match text.parse::<jiff::Timestamp>() {
            Ok(time) => Ok(Expiry::At(time.as_second())),
            Err(_) => Err(ManagementFault::invalid(
                "expires",
                "90d or a time such as 2027-01-01T00:00:00Z",
                format!("{text:?}"),
            )),
        }
    }

    /// Returns the expiry in Unix seconds.
    pub fn to_unix_seconds(&self, now: i64) -> i64 {
        match self {
            Expiry::At(time) => *time,
            Expiry::After(seconds) => now.saturating_add(*seconds),
        }
    }
}
