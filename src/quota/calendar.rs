//! Which month it is: the clocks' word, held against the time that has really passed.
//!
//! A month never reopens. A later one begins when the time that passed since a clock was last
//! believed agrees. Where the store has a clock of its own, all nodes go by that one. A clock
//! that jumped is believed when another one confirms it, or after ten minutes in which it went on
//! steadily. Reads no clock itself: `passed` is CLOCK_BOOTTIME, which goes on through sleep and
//! which nobody sets.

use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::month::Month;

/// Clocks may be apart by this many seconds and still agree.
const TOLERANCE: i64 = 5;
/// A jump is believed after this many seconds of steady agreement with itself.
const HOLD: i64 = 600;
/// A store that was not heard for so many seconds has no word in the matter.
const HEARD_FOR: i64 = 60;

pub(super) struct Calendar {
    latest: AtomicU16,
    /// What to add to this machine's clock to have the believed time.
    correction: AtomicI64,
    belief: Mutex<Belief>,
}

struct Belief {
    /// The believed clock minus the time that passed since the start.
    offset: i64,
    /// When the store's clock was last heard.
    heard_store: Option<i64>,
    /// The month that some node had counted in before the start.
    known: Option<Month>,
    /// Another offset, and the moment in which it was first seen.
    doubt: Option<(i64, i64)>,
}

impl Calendar {
    /// Believes the clock at the start, but never before `latest`, which some node counted in. A
    /// clock that is more than a month beyond it is only believed once it proves steady.
    /// `unix_now` and `passed` are seconds of the clock and of the time that passed.
    pub(super) fn new(latest: Option<Month>, unix_now: i64, passed: i64) -> Calendar {
        let now = Month::containing(unix_now);
        let far_ahead = |latest: &Month| now.number() > latest.number() + 1;
        let (month, unix_now) = match latest.filter(far_ahead) {
            // As if that month had just begun.
            Some(latest) => (latest, latest.start()),
            None => (latest.map_or(now, |latest| latest.max(now)), unix_now),
        };
        Calendar {
            latest: AtomicU16::new(month.number()),
            correction: AtomicI64::new(0),
            belief: Mutex::new(Belief {
                offset: unix_now - passed,
                heard_store: None,
                known: latest,
                doubt: None,
            }),
        }
    }

    /// The latest month that is believed in.
    pub(super) fn latest(&self) -> Month {
        Month::from_number(self.latest.load(Ordering::Relaxed)).unwrap_or(Month::LAST)
    }

    /// The month that a call at this second belongs to. Takes a lock only at a month's turn.
    pub(super) fn month(&self, unix_now: i64, passed: impl FnOnce() -> i64) -> Month {
        let corrected = unix_now.saturating_add(self.correction.load(Ordering::Relaxed));
        if Month::containing(corrected) <= self.latest() {
            return self.latest();
        }
        let passed = passed();
        let mut belief = self.belief.lock().unwrap_or_else(PoisonError::into_inner);
        let store_speaks = belief.heard_store.is_some_and(|heard| passed - heard <= HEARD_FOR);
        let mut believed = passed + belief.offset;
        if !store_speaks && belief.weigh(unix_now - passed, passed, None) {
            believed = unix_now;
        }
        let month = Month::containing(believed);
        self.latest.fetch_max(month.number(), Ordering::Relaxed);
        self.latest()
    }

    /// Whether the store's clock was ever heard.
    pub(super) fn has_heard_store(&self) -> bool {
        self.belief.lock().unwrap_or_else(PoisonError::into_inner).heard_store.is_some()
    }

    /// Looks at this machine's clock all along, so that one that was set is believed long before
    /// a month turns.
    pub(super) fn hear_machine(&self, unix_now: i64, passed: i64) {
        let mut belief = self.belief.lock().unwrap_or_else(PoisonError::into_inner);
        belief.weigh(unix_now - passed, passed, None);
    }

    /// Takes the store's clock, by which all nodes go. The first word is believed at once, since
    /// this node has counted nothing yet that the store knows of.
    pub(super) fn hear_store(&self, store_now: i64, unix_now: i64, passed: i64) {
        let mut belief = self.belief.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = store_now - passed;
        if belief.heard_store.is_none() {
            // What this machine said before counts for nothing.
            let now = Month::containing(store_now);
            let month = belief.known.map_or(now, |known| known.max(now));
            self.latest.store(month.number(), Ordering::Relaxed);
            belief.offset = offset;
            belief.doubt = None;
        } else if (offset - belief.offset).abs() <= TOLERANCE {
            belief.offset = offset;
            belief.doubt = None;
        } else {
            belief.weigh(offset, passed, Some(unix_now - passed));
        }
        belief.heard_store = Some(passed);
        self.correction.store(belief.offset - (unix_now - passed), Ordering::Relaxed);
    }
}

impl Belief {
    /// Whether a clock with this offset is believed: since it agrees, since a second one confirms
    /// it, or since it has been steady for long enough.
    fn weigh(&mut self, offset: i64, passed: i64, second: Option<i64>) -> bool {
        let agree = |a: i64, b: i64| (a - b).abs() <= TOLERANCE;
        if agree(offset, self.offset) {
            self.doubt = None;
            return true;
        }
        let since = match self.doubt {
            Some((doubted, since)) if agree(offset, doubted) => since,
            _ => {
                log::warn!("a clock jumped by {} s: held for ten minutes", offset - self.offset);
                self.doubt = Some((offset, passed));
                passed
            }
        };
        let confirmed = second.is_some_and(|second| agree(offset, second));
        if confirmed || passed - since >= HOLD {
            self.offset = offset;
            self.doubt = None;
            return true;
        }
        false
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
    fn a_clock_far_ahead_at_the_start_is_held_until_it_proves_steady() {
        let known = Some(Month::containing(END));
        let wrong = END + 62 * 86_400;
        let calendar = Calendar::new(known, wrong, 0);
        assert_eq!(month(&calendar, wrong + 1, 1), "2026-11");
        assert_eq!(month(&calendar, wrong + 600, 600), "2026-11");
        assert_eq!(month(&calendar, wrong + 601, 601), "2027-02");
        // A gateway that was off over a month's end goes on at once.
        let calendar = Calendar::new(known, END + 5 * 86_400, 0);
        assert_eq!(month(&calendar, END + 5 * 86_400, 0), "2026-12");
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

    #[test]
    fn a_clock_that_was_set_long_ago_opens_the_month_on_time() {
        let calendar = Calendar::new(None, END - 86_400, 0);
        for passed in 0..=601 {
            calendar.hear_machine(END - 86_400 + 30 + passed, passed);
        }
        assert_eq!(month(&calendar, END + 1, 86_371), "2026-12");
    }

    #[test]
    fn all_nodes_go_by_the_store_s_clock() {
        // One clock is an hour ahead, one an hour behind; the store says it is noon.
        let store = END - 10;
        for wrong in [-3_600, 3_600] {
            let calendar = Calendar::new(Some(Month::containing(store)), store + wrong.min(0), 0);
            calendar.hear_store(store, store + wrong, 0);
            assert_eq!(month(&calendar, store + wrong + 10, 10), "2026-11", "{wrong}");
            assert_eq!(month(&calendar, store + wrong + 11, 11), "2026-12", "{wrong}");
        }
    }

    #[test]
    fn a_wrong_clock_at_the_start_is_forgotten_once_the_store_is_heard() {
        let store = END - 86_400;
        let calendar = Calendar::new(None, store + 40 * 86_400, 0);
        assert_eq!(calendar.latest().to_string(), "2027-01");
        calendar.hear_store(store, store + 40 * 86_400, 1);
        assert_eq!(month(&calendar, store + 40 * 86_400 + 1, 2), "2026-11");
    }

    #[test]
    fn a_store_s_clock_that_jumps_is_confirmed_by_ours_or_held() {
        let jump = 40 * 86_400;
        let start = END - 86_400;
        let calendar = Calendar::new(None, start, 0);
        calendar.hear_store(start, start, 0);
        calendar.hear_store(start + jump, start + 1, 1);
        assert_eq!(month(&calendar, start + 1, 1), "2026-11");
        calendar.hear_store(start + jump + 600, start + 601, 601);
        assert_eq!(month(&calendar, start + 602, 602), "2027-01", "steady for ten minutes");

        let calendar = Calendar::new(None, start, 0);
        calendar.hear_store(start, start, 0);
        calendar.hear_store(start + jump, start + jump, 1);
        assert_eq!(month(&calendar, start + jump, 1), "2027-01", "both clocks say so");
    }

    #[test]
    fn a_store_that_fell_silent_leaves_the_word_to_the_machine() {
        let start = END - 86_400;
        let calendar = Calendar::new(None, start, 0);
        calendar.hear_store(start, start, 0);
        assert_eq!(month(&calendar, END, 86_400), "2026-11");
        assert_eq!(month(&calendar, END + 1, 86_401), "2026-12");
    }
}
