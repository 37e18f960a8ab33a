//! What a store knows of the time when a process starts, and which clocks agree with it.
//!
//! This file reads no clock.

use crate::model::believed_time::MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS;
use crate::model::month::Month;

/// A clock shows the time of a running gateway if it is ahead of the time last told by at most this
/// many seconds: each gateway tells the store its time once a minute.
const MAX_ANCHOR_AGE_SECONDS: i64 = 120;
/// 2025-01-01T00:00:00Z. A clock that shows an earlier time was never set, so it confirms nothing.
pub(super) const EARLIEST_VALID_TIME: i64 = 1_735_689_600;

/// What a store knows of the time when a process starts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownTime {
    /// The store's latest month, which nodes have told it.
    pub(super) latest_counted_month: Option<Month>,
    /// A time that has passed: the believed time that a gateway last told the store. If the store
    /// knows neither this time nor a month, a command takes the time of the latest audit record.
    pub(super) past: Option<i64>,
    /// The present time: the time that a gateway last told the store, plus what CLOCK_BOOTTIME has
    /// counted since. `None` unless that gateway ran on this machine, in the same boot.
    pub(super) present: Option<i64>,
}

impl KnownTime {
    pub(super) fn is_empty(&self) -> bool {
        self.latest_counted_month.is_none() && self.past.is_none()
    }

    /// The latest time that the store knows to have passed.
    pub(super) fn lower_bound(&self) -> Option<i64> {
        self.past.max(self.latest_counted_month.map(Month::start))
    }

    /// Returns true if a clock that shows this time contradicts nothing that the store knows. The
    /// clock must have been set. If the store knows a [`KnownTime::lower_bound`], the time must not
    /// be before the bound, and must be in the month of the bound or in the next month.
    pub(super) fn is_consistent_with(&self, unix_now: i64) -> bool {
        let is_next = |past: i64| {
            let (past_month, month) = (Month::containing(past), Month::containing(unix_now));
            unix_now >= past && month.number() <= past_month.number() + 1
        };
        unix_now >= EARLIEST_VALID_TIME && self.lower_bound().is_none_or(is_next)
    }

    /// Returns true if the first reading of the store's clock replaces the believed time at once.
    /// Let M be [`KnownTime::latest_counted_month`]. The reading may show:
    /// - M;
    /// - a month before M, if this machine's clock shows the same time as the reading;
    /// - a month after M, if that month has begun by this machine's clock;
    /// - the month after M, if this machine's clock shows a month before M, which is wrong. The
    ///   month after M may have begun while no node ran.
    ///
    /// If the store has no such month, the reading may show a month that has begun by this
    /// machine's clock. If that clock was never set, the reading may show any month.
    ///
    /// In these cases, the result is always false:
    /// - CLOCK_BOOTTIME tells the present time, so the believed time is known already.
    /// - The store's clock was never set.
    /// - The reading is clearly before a time that has passed.
    /// - This machine's clock shows what a gateway has just told the store, and the reading does
    ///   not.
    pub(super) fn accepts_first_store_time(&self, store_now: i64, unix_now: i64) -> bool {
        let is_before_known =
            self.past.is_some_and(|past| store_now < past - MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS);
        let is_outvoted = self.is_just_told(unix_now) && !self.is_just_told(store_now);
        if self.present.is_some()
            || store_now < EARLIEST_VALID_TIME
            || is_before_known
            || is_outvoted
        {
            return false;
        }
        let month = Month::containing(store_now);
        let machine = Month::containing(unix_now + MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS);
        match self.latest_counted_month {
            Some(known) if month < known => is_within_tolerance(store_now, unix_now),
            Some(known) if month == known || month <= machine => true,
            Some(known) => machine < known && month.number() == known.number() + 1,
            None => month <= machine || unix_now < EARLIEST_VALID_TIME,
        }
    }

    /// Returns true if the time is that of a gateway which has just told the store its time.
    fn is_just_told(&self, unix_now: i64) -> bool {
        let age = self.past.map(|past| unix_now - past);
        age.is_some_and(|age| {
            (-MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS..=MAX_ANCHOR_AGE_SECONDS).contains(&age)
        })
    }
}

impl From<Option<Month>> for KnownTime {
    fn from(latest_counted_month: Option<Month>) -> KnownTime {
        KnownTime { latest_counted_month, ..KnownTime::default() }
    }
}

/// Returns true if clocks that show these times agree.
pub(super) fn is_within_tolerance(a: i64, b: i64) -> bool {
    (a - b).abs() <= MAX_SKEW_OF_AGREEING_CLOCKS_SECONDS
}
