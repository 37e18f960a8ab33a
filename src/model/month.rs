//! Calendar months in UTC, the periods of the quota.
//!
//! Callers pass the time in; this module never reads a clock.

use std::fmt;

/// A calendar month in UTC, counted from January 2000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Month(u16);

const EPOCH_YEAR: i64 = 2000;

impl Month {
    /// The first month that can be represented, January 2000. It also stands for "no month yet".
    pub const FIRST: Month = Month(0);
    /// The last month that can be represented, in 2341: the number has twelve bits.
    pub const LAST: Month = Month(4095);

    /// The month that contains this second since 1970-01-01T00:00:00Z. Earlier times give
    /// [`Month::FIRST`], later times [`Month::LAST`].
    pub fn containing(unix_seconds: i64) -> Month {
        let (year, month, _) = civil_from_days(unix_seconds.div_euclid(86_400));
        let number = (year - EPOCH_YEAR) * 12 + month - 1;
        Month(number.clamp(0, i64::from(Month::LAST.0)) as u16)
    }

    /// The month that [`Month::number`] numbers so; `None` above [`Month::LAST`].
    pub fn from_number(number: u16) -> Option<Month> {
        (number <= Month::LAST.0).then_some(Month(number))
    }

    /// Parses the form that [`Display`](fmt::Display) writes: `2026-11`.
    pub fn parse(text: &str) -> Option<Month> {
        let (year, month) = text.split_once('-')?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (year.len(), month.len()) != (4, 2) || !is_number(year) || !is_number(month) {
            return None;
        }
        let (year, month): (i64, i64) = (year.parse().ok()?, month.parse().ok()?);
        let number = (year - EPOCH_YEAR) * 12 + month - 1;
        let number = u16::try_from(number).ok().filter(|_| (1..=12).contains(&month))?;
        Month::from_number(number)
    }

    /// Months since January 2000, at most 4095.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The first second of the month, in seconds since 1970.
    pub fn start(self) -> i64 {
        let number = i64::from(self.0);
        days_from_civil(EPOCH_YEAR + number / 12, number % 12 + 1) * 86_400
    }

    /// The first second of the next month, when the quota is reset.
    pub fn end(self) -> i64 {
        let next = i64::from(self.0) + 1;
        days_from_civil(EPOCH_YEAR + next / 12, next % 12 + 1) * 86_400
    }

    /// When the quota is reset, in RFC 3339: `2026-12-01T00:00:00Z`.
    pub fn reset_at(self) -> String {
        let next = i64::from(self.0) + 1;
        format!("{:04}-{:02}-01T00:00:00Z", EPOCH_YEAR + next / 12, next % 12 + 1)
    }

    /// Whole seconds from `unix_seconds` to the end of the month, at least 1.
    pub fn seconds_until_end(self, unix_seconds: i64) -> u64 {
        (self.end() - unix_seconds).max(1) as u64
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = i64::from(self.0);
        write!(f, "{:04}-{:02}", EPOCH_YEAR + number / 12, number % 12 + 1)
    }
}

/// Formats seconds since 1970 in RFC 3339, in UTC: `2026-11-21T03:47:00Z`.
pub fn format_rfc3339(unix_seconds: i64) -> String {
    let (year, month, day) = civil_from_days(unix_seconds.div_euclid(86_400));
    let second = unix_seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days since 1970-01-01, in the proleptic Gregorian calendar
/// (H. Hinnant, "chrono-compatible low-level date algorithms").
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to the first of a month.
fn days_from_civil(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().unwrap().as_second()
    }

    #[test]
    fn a_month_ends_with_the_first_second_of_the_next() {
        for (now, month, reset) in [
            ("2026-11-01T00:00:00Z", "2026-11", "2026-12-01T00:00:00Z"),
            ("2026-11-30T23:59:59Z", "2026-11", "2026-12-01T00:00:00Z"),
            ("2026-12-31T23:59:59Z", "2026-12", "2027-01-01T00:00:00Z"),
            ("2028-02-29T12:00:00Z", "2028-02", "2028-03-01T00:00:00Z"),
        ] {
            let found = Month::containing(seconds(now));
            assert_eq!(found.to_string(), month);
            assert_eq!(found.reset_at(), reset);
            assert_eq!(found.end(), seconds(reset));
            assert_eq!(Month::from_number(found.number()), Some(found));
            assert_eq!(Month::parse(month), Some(found));
        }
    }

    #[test]
    fn the_wait_for_a_reset_is_at_least_a_second() {
        let month = Month::containing(seconds("2026-11-30T23:59:59Z"));
        assert_eq!(month.seconds_until_end(seconds("2026-11-30T23:59:58Z")), 2);
        assert_eq!(month.seconds_until_end(seconds("2026-12-01T00:00:07Z")), 1);
    }

    #[test]
    fn times_out_of_range_stay_in_range() {
        assert_eq!(Month::containing(i64::MIN / 4).number(), 0);
        assert_eq!(Month::containing(i64::MAX / 4), Month::LAST);
        assert_eq!(Month::from_number(4096), None);
        for text in ["", "2026", "2026-13", "2026-00", "1999-12", "2341-05", "2026-1", "+026-11"] {
            assert_eq!(Month::parse(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn times_are_formatted_as_jiff_formats_them(second in 0i64..8_000_000_000) {
            let expected = jiff::Timestamp::from_second(second).unwrap().to_string();
            proptest::prop_assert_eq!(format_rfc3339(second), expected);
        }
    }
}
