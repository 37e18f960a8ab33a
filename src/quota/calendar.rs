//! Which month it is: the clock's word, held against the time that has really passed.
//!
//! A month never reopens. A later one begins when the clock agrees with the monotonic time since
//! it was last believed; a clock that jumped ahead is believed after ten minutes in which it went
//! on steadily. Reads no clock itself.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::month::Month;

/// A clock may be off by this many seconds and still agree.
const TOLERANCE: i64 = 5;
/// A jump ahead is believed after this many seconds of steady agreement with itself.
const HOLD: i64 = 600;

pub(super) struct Calendar {
    latest: AtomicU16,
    belief: Mutex<Belief>,
}

struct Belief {
    /// Clock minus monotonic seconds, when the clock was last believed.
    offset: i64,
    /// Another offset, and the monotonic second in which it was first seen.
    doubt: Option<(i64, i64)>,
}

impl Calendar {
    /// Believes the clock at the start, but never before `latest`, which some node counted in.
    /// `unix_now` and `passed` are seconds of the clock and of monotonic time.
    pub(super) fn new(latest: Option<Month>, unix_now: i64, passed: i64) -> Calendar {
        let now = Month::containing(unix_now);
        let month = latest.map_or(now, |latest| latest.max(now));
        Calendar {
            latest: AtomicU16::new(month.number()),
            belief: Mutex::new(Belief { offset: unix_now - passed, doubt: None }),
        }
    }

    /// The latest month that is believed in.
    pub(super) fn latest(&self) -> Month {
        Month::from_number(self.latest.load(Ordering::Relaxed)).unwrap_or(Month::LAST)
    }

    /// The month that a call at this second belongs to. Takes a lock only at a month's turn.
    pub(super) fn month(&self, unix_now: i64, passed: impl FnOnce() -> i64) -> Month {
        let now = Month::containing(unix_now);
        if now <= self.latest() || !self.believes(unix_now, passed()) {
            return self.latest();
        }
        self.latest.fetch_max(now.number(), Ordering::Relaxed);
        now
    }

    fn believes(&self, unix_now: i64, passed: i64) -> bool {
        let mut belief = self.belief.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = unix_now - passed;
        if (offset - belief.offset).abs() <= TOLERANCE {
            return true;
        }
        match belief.doubt {
            Some((doubted, since)) if (offset - doubted).abs() <= TOLERANCE => {
                if passed - since < HOLD {
                    return false;
                }
                *belief = Belief { offset, doubt: None };
                true
            }
            _ => {
                log::warn!("the clock jumped ahead into another month; held for ten minutes");
                belief.doubt = Some((offset, passed));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last second of November 2026.
    const END: i64 = 1_796_083_199;

    fn month(calendar: &Calendar, unix_now: i64, passed: i64) -> String {
        calendar.month(unix_now, || passed).to_string()
    }

    #[test]
    fn a_month_begins_on_time_and_never_again() {
        let calendar = Calendar::new(None, END - 100, 0);
        assert_eq!(month(&calendar, END, 100), "2026-11");
        assert_eq!(month(&calendar, END + 1, 101), "2026-12");
        assert_eq!(month(&calendar, END, 102), "2026-12");
        let later = Month::containing(END + 1);
        assert_eq!(month(&Calendar::new(Some(later), END, 0), END, 0), "2026-12");
    }

    #[test]
    fn a_jump_ahead_is_held_until_it_proves_steady() {
        let calendar = Calendar::new(None, END - 86_400, 0);
        let jump = END + 40 * 86_400;
        assert_eq!(month(&calendar, jump, 1), "2026-11");
        // It steps back: nothing has happened.
        assert_eq!(month(&calendar, END - 86_398, 2), "2026-11");
        // It jumps about: nothing is steady.
        assert_eq!(month(&calendar, jump + 500, 500), "2026-11");
        assert_eq!(month(&calendar, jump + 3_000, 700), "2026-11");
        assert_eq!(month(&calendar, jump + 3_000 + 599, 700 + 599), "2026-11");
        assert_eq!(month(&calendar, jump + 3_000 + 600, 700 + 600), "2027-01");
    }
}
