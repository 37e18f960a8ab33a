//! Calendar months in UTC, the periods of the quota, and the text forms of times.
//!
//! Callers pass the time in; this module never reads a clock.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, date, datetime};
use smol_str::{SmolStr, format_smolstr};

/// A calendar month in UTC, counted from January 2000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Month(u16);

const EPOCH_YEAR: i16 = 2000;
/// The seconds of a day in Unix time, which has no leap seconds.
pub const SECONDS_PER_DAY: i64 = 86_400;
const UNIX_EPOCH: DateTime = datetime(1970, 1, 1, 0, 0, 0, 0);

impl Month {
    /// The first month that can be represented, January 2000. It also stands for "no month yet".
    pub const FIRST: Month = Month(0);
    /// The last month that can be represented, in 2341: the number has twelve bits.
    pub const LAST: Month = Month(4095);

    /// The month that contains this second since 1970-01-01T00:00:00Z. A time before
    /// [`Month::FIRST`] gives this month, and a time after [`Month::LAST`] gives that month.
    pub fn containing(unix_seconds: i64) -> Month {
        let time = to_date_time(unix_seconds);
        let years = i32::from(time.year() - EPOCH_YEAR);
        let number = years * 12 + i32::from(time.month()) - 1;
        Month(number.clamp(0, i32::from(Month::LAST.0)) as u16)
    }

    /// The month with this [`Month::number`]; `None` if the number is above 4095.
    pub fn from_number(number: u16) -> Option<Month> {
        (number <= Month::LAST.0).then_some(Month(number))
    }

    /// Parses the form that [`Display`](fmt::Display) writes: `2026-11`.
    pub fn parse(text: &str) -> Option<Month> {
        let month = Month::containing(parse_day_as_unix_seconds(&format!("{text}-01"))?);
        // A month out of range became the first or the last.
        (month.to_string() == text).then_some(month)
    }

    /// Months since January 2000, at most 4095.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The first second of the month, in seconds since 1970.
    pub fn start(self) -> i64 {
        to_unix_seconds(first_day(self.0))
    }

    /// The first second of the next month, when the quota is reset.
    pub fn end(self) -> i64 {
        to_unix_seconds(first_day(self.0 + 1))
    }

    /// When the quota is reset, in RFC 3339: `2026-12-01T00:00:00Z`.
    pub fn reset_at(self) -> String {
        format_rfc3339(self.end())
    }

    /// Returns the day of this month at this time, from 1. A time before the month gives the first
    /// day, a time after the month the last day.
    pub fn day_at(self, unix_seconds: i64) -> u8 {
        let last_second = self.end() - 1;
        let day = (unix_seconds.clamp(self.start(), last_second) - self.start()) / SECONDS_PER_DAY;
        day as u8 + 1
    }

    /// Whole seconds from `unix_seconds` to the end of the month, at least 1.
    pub fn seconds_until_end(self, unix_seconds: i64) -> u64 {
        (self.end() - unix_seconds).max(1) as u64
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = first_day(self.0);
        write!(f, "{:04}-{:02}", day.year(), day.month())
    }
}

/// Formats seconds since 1970 in RFC 3339, in UTC: `2026-11-21T03:47:00Z`. A time before the year
/// -9999 becomes the first second of that year; a time after 9999 becomes its last second.
pub fn format_rfc3339(unix_seconds: i64) -> String {
    format!("{:.0}Z", to_date_time(unix_seconds))
}

/// Formats seconds since 1970 as [`format_rfc3339`] does. Returns `None` for 0, which stands for a
/// time that is not known.
pub fn format_known_time(unix_seconds: i64) -> Option<String> {
    (unix_seconds != 0).then(|| format_rfc3339(unix_seconds))
}

/// Parses a time in RFC 3339, or in a similar form that jiff reads. Returns seconds since 1970. The
/// last 26 hours of the year 9999, which stand for "never" in some programs, become the last time
/// that jiff knows.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    let is_time = |text: &str| text.parse::<jiff::Timestamp>().is_ok();
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Some(time.as_second()),
        Err(_) if text.starts_with("9999-") && is_time(&text.replacen("9999", "9998", 1)) => {
            Some(jiff::Timestamp::MAX.as_second())
        }
        Err(_) => None,
    }
}

/// Formats milliseconds since 1970 in RFC 3339, in UTC: `2026-11-21T03:47:00.123Z`.
pub fn format_rfc3339_millis(unix_ms: i64) -> String {
    let second = format_rfc3339(unix_ms.div_euclid(1000));
    format!("{}.{:03}Z", second.trim_end_matches('Z'), unix_ms.rem_euclid(1000))
}

/// Formats the day of a time in seconds since 1970, in UTC: `2026-11-21`.
pub fn format_day(unix_seconds: i64) -> SmolStr {
    format_smolstr!("{}", to_date_time(unix_seconds).date())
}

/// Parses a day such as `2026-11-21`. Returns when the day begins in UTC, in seconds since 1970.
pub fn parse_day_as_unix_seconds(text: &str) -> Option<i64> {
    // jiff accepts other forms of a date too.
    let day = text.parse::<Date>().ok().filter(|day| day.to_string() == text)?;
    Some(to_unix_seconds(day))
}

fn first_day(month_number: u16) -> Date {
    date(EPOCH_YEAR + (month_number / 12) as i16, (month_number % 12) as i8 + 1, 1)
}

fn to_unix_seconds(day: Date) -> i64 {
    day.duration_since(UNIX_EPOCH.date()).as_secs()
}

fn to_date_time(unix_seconds: i64) -> DateTime {
    UNIX_EPOCH.saturating_add(SignedDuration::from_secs(unix_seconds))
}

#[cfg(test)]
mod tests;
