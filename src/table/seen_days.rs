//! The days on which sources had a name. Lists of kind `seen` and the files of feeds have these
//! days.

use crate::model::month::{SECONDS_PER_DAY, parse_day_as_unix_seconds};

/// A day, counted from 1 January 1970. 0 stands for an unknown day: no list is that old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Day(pub u16);

impl Day {
    /// Stands for a day that is not known.
    pub(super) const UNKNOWN: Day = Day(0);

    /// The day of a time in seconds since 1970; unknown if it is out of range.
    pub(super) fn containing(unix_seconds: i64) -> Day {
        Day(u16::try_from(unix_seconds.div_euclid(SECONDS_PER_DAY)).unwrap_or_default())
    }

    /// Parses a day such as `2026-11-21`; `None` if the text is no day after 1 January 1970.
    pub(super) fn parse(text: &str) -> Option<Day> {
        let day = parse_day_as_unix_seconds(text).map(Day::containing)?;
        (day != Day::UNKNOWN).then_some(day)
    }

    /// When the day begins, in seconds since 1970; `None` if the day is unknown.
    pub(super) fn to_unix_seconds(self) -> Option<i64> {
        (self != Day::UNKNOWN).then(|| i64::from(self.0) * SECONDS_PER_DAY)
    }
}

/// The days on which sources first and last had a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SeenDays {
    pub first: Day,
    pub last: Day,
}

impl SeenDays {
    /// The days of a name that a source last had on this day, and first had on an unknown day.
    pub(super) fn with_unknown_first(last: Day) -> SeenDays {
        SeenDays { first: Day::UNKNOWN, last }
    }

    /// Adds the days of another row about the same name.
    pub(super) fn merge(&mut self, other: SeenDays) {
        self.last = self.last.max(other.last);
        self.first = match (self.first, other.first) {
            (Day::UNKNOWN, known) | (known, Day::UNKNOWN) => known,
            (a, b) => a.min(b),
        };
    }
}

#[cfg(test)]
mod tests;
