//! When a key or an admin token expires, as an operator writes it.

use super::fault::ManagementFault;
use crate::config::{TextKind, guess_text, parse_duration};
use crate::model::believed_time::BelievedTime;
use crate::model::month::{format_rfc3339, parse_rfc3339};

/// An expiry: a time, or a number of seconds from now.
pub enum Expiry {
    /// Unix seconds.
    At(i64),
    /// Seconds from now.
    After(i64),
}

impl Expiry {
    /// Parses a duration such as `90d`, or a time in RFC 3339.
    ///
    /// # Errors
    /// Returns a fault of the value `expires` for any other text, and for a duration of less than a
    /// second.
    pub fn parse(text: &str) -> Result<Expiry, ManagementFault> {
        if let Some(duration) = parse_duration(text).filter(|duration| duration.as_secs() > 0) {
            return Ok(Expiry::After(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)));
        }
        parse_rfc3339(text).map(Expiry::At).ok_or_else(|| {
            let is_valid = |it: &str| {
                parse_duration(it).is_some_and(|it| it.as_secs() > 0) || parse_rfc3339(it).is_some()
            };
            // Nobody makes a key for some seconds.
            let is_number = text.parse::<u32>().is_ok_and(|it| it > 0);
            let days = is_number.then(|| format!("{text}d"));
            let meant = days.or_else(|| guess_text(text, TextKind::Time, is_valid));
            let expected = "90d or a time such as 2027-01-01T00:00:00Z";
            ManagementFault::invalid("expires", expected, format!("{text:?}")).with_meant(meant)
        })
    }

    /// Returns the expiry in Unix seconds.
    ///
    /// # Errors
    /// If the present time `now` is known, returns a fault if the expiry has passed. If `now` is
    /// not known, returns a fault if the expiry is a number of seconds from now.
    pub fn to_unix_seconds(&self, now: BelievedTime) -> Result<i64, ManagementFault> {
        match self {
            Expiry::At(time) if now.is_known() && *time <= now.unix_now => {
                Err(ManagementFault::invalid(
                    "expires",
                    "a time in the future",
                    format!(
                        "{}, and it is {}",
                        format_rfc3339(*time),
                        format_rfc3339(now.unix_now)
                    ),
                ))
            }
            Expiry::At(time) => Ok(*time),
            Expiry::After(seconds) if now.is_known() => Ok(now.unix_now.saturating_add(*seconds)),
            Expiry::After(_) => Err(ManagementFault::Conflict(
                "clock: expected a clock that agrees with the times in the store, but found none; \
                 set the clock, start the gateway, and repeat this once /readyz shows no clock"
                    .to_owned(),
            )),
        }
    }
}

#[cfg(test)]
mod tests;
