//! What time it is, and which month: the clocks' word, held against the time that really passed.
//!
//! There is one believed time: CLOCK_BOOTTIME, which nobody sets and which goes on through sleep,
//! and an offset that only this file changes. Where the store has a clock of its own, all nodes
//! go by that one. A clock that disagrees is doubted until the other clock confirms it, or until
//! it was steady for ten minutes; meanwhile the believed time goes on. A month never reopens.
//! Reads no clock itself: `passed` is CLOCK_BOOTTIME in seconds.

use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::sync::lock;
use crate::model::month::{Month, rfc3339};

/// Clocks may be apart by this many seconds and still agree.
const TOLERANCE: i64 = 5;
/// A jump is believed after this many seconds of steady agreement with itself.
const HOLD: i64 = 600;
/// 2025-01-01T00:00:00Z. A clock that shows less was never set, and confirms nothing.
const EARLIEST: i64 = 1_735_689_600;

pub(super) struct Calendar {
    latest: AtomicU16,
    /// The believed time minus the time that passed.
    offset: AtomicI64,
    belief: Mutex<Belief>,
}

struct Belief {
    offset: i64,
    /// The month that some node had counted in before the start.
    known: Option<Month>,
    has_heard_store: bool,
    /// The store's clock was believed at least once. Then this machine's moves nothing any more.
    goes_by_store: bool,
    store_doubt: Option<Doubt>,
    machine_doubt: Option<Doubt>,
}

/// A clock that shows another time than the believed one.
#[derive(Clone, Copy)]
struct Doubt {
    /// What it shows minus the time that passed, and the moment since which it has done so.
    offset: i64,
    since: i64,
}

/// Whose clock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Store,
    Machine,
}

impl Calendar {
    /// Believes this machine's clock at the start, unless it shows a time before `latest`, which
    /// some node counted in, or more than a month beyond it. Then it is as if that month had just
    /// begun. `unix_now` and `passed` are seconds of the clock and of the time that passed.
    pub(super) fn new(latest: Option<Month>, unix_now: i64, passed: i64) -> Calendar {
        let now = Month::containing(unix_now);
        let odd = |latest: &Month| now < *latest || now.number() > latest.number() + 1;
        let believed = latest.filter(odd).map_or(unix_now, Month::start);
        let offset = believed - passed;
        let calendar = Calendar {
            latest: AtomicU16::new(Month::containing(believed).number()),
            offset: AtomicI64::new(offset),
            belief: Mutex::new(Belief {
                offset,
                known: latest,
                has_heard_store: false,
                goes_by_store: false,
                store_doubt: None,
                machine_doubt: None,
            }),
        };
        calendar.hear_machine(unix_now, passed);
        calendar
    }

    /// The believed time, in Unix seconds. Takes no lock.
    pub(super) fn now(&self, passed: i64) -> i64 {
        passed + self.offset.load(Ordering::Relaxed)
    }

    /// The latest month that is believed in.
    pub(super) fn latest(&self) -> Month {
        Month::from_number(self.latest.load(Ordering::Relaxed)).unwrap_or(Month::LAST)
    }

    /// The month that a call at this believed time belongs to. Takes a lock only at a month's
    /// turn: the time is looked at once more then, since it may have been corrected meanwhile.
    pub(super) fn month(&self, now: i64, passed: impl FnOnce() -> i64) -> Month {
        if Month::containing(now) <= self.latest() {
            return self.latest();
        }
        let belief = lock(&self.belief);
        let month = Month::containing(passed() + belief.offset);
        self.latest.fetch_max(month.number(), Ordering::Relaxed);
        self.latest()
    }

    /// The month that other nodes may be told: by the store's clock, once that was believed, and
    /// never by this machine's alone.
    pub(super) fn month_of_store(&self, passed: i64) -> Option<Month> {
        let belief = lock(&self.belief);
        belief.goes_by_store.then(|| Month::containing(passed + belief.offset))
    }

    /// Looks at this machine's clock. It moves the believed time only where the store's never did.
    pub(super) fn hear_machine(&self, unix_now: i64, passed: i64) {
        let mut belief = lock(&self.belief);
        if !belief.goes_by_store {
            let told = belief.weigh(Clock::Machine, unix_now - passed, passed, None, self.latest());
            self.take_over(belief, told);
        }
    }

    /// Looks at the store's clock, by which all nodes go, with this machine's as a second one.
    pub(super) fn hear_store(&self, store_now: i64, unix_now: i64, passed: i64) {
        let mut belief = lock(&self.belief);
        let is_first = !std::mem::replace(&mut belief.has_heard_store, true);
        let (offset, machine) = (store_now - passed, unix_now - passed);
        let mut told = None;
        if is_first && belief.is_plausible(store_now, unix_now) {
            // What this machine said before counts for nothing: no call was counted by it yet.
            let now = Month::containing(store_now);
            let month = belief.known.map_or(now, |known| known.max(now));
            self.latest.store(month.number(), Ordering::Relaxed);
            belief.believe(offset);
        } else {
            told = belief.weigh(Clock::Store, offset, passed, Some(machine), self.latest());
        }
        belief.goes_by_store |= belief.store_doubt.is_none();
        self.take_over(belief, told);
        // Only where the store's clock was never believed.
        self.hear_machine(unix_now, passed);
    }

    fn take_over(&self, belief: MutexGuard<'_, Belief>, told: Option<String>) {
        self.offset.store(belief.offset, Ordering::Relaxed);
        // Not with the lock in hand: a log may take its time.
        drop(belief);
        if let Some(told) = told {
            log::warn!("{told}");
        }
    }

    /// What an operator should know of the clocks: which one is doubted, and whether calls were
    /// counted in a month that has not begun.
    pub(super) fn problem(&self, passed: i64) -> Option<String> {
        let belief = lock(&self.belief);
        let latest = self.latest();
        let now = Month::containing(passed + belief.offset);
        let doubts = [(Clock::Store, belief.store_doubt), (Clock::Machine, belief.machine_doubt)];
        let doubted = doubts.into_iter().find_map(|(clock, doubt)| Some((clock, doubt?)));
        let counted = |now: Month| {
            let repair = format!("`riskgate store repair-month {now}`");
            format!("calls of {latest} were counted; if that was wrong, {repair}")
        };
        match doubted {
            Some((clock, doubt)) => {
                let shown = passed + doubt.offset;
                let (name, time) = (clock.name(), rfc3339(shown));
                let month = Month::containing(shown);
                let held = || "held until it is confirmed or was steady for ten minutes".to_owned();
                let why = if month < latest { counted(month) } else { held() };
                Some(format!("{name} clock says {time}: {why}"))
            }
            None if now < latest => Some(format!("it is {now}, but {}", counted(now))),
            None => None,
        }
    }
}

impl Clock {
    fn name(self) -> &'static str {
        match self {
            Clock::Store => "the store's",
            Clock::Machine => "this machine's",
        }
    }
}

impl Belief {
    /// Whether the first word of the store's clock can be believed at once: it brings no month
    /// forward, or this machine's clock says too that the month has begun. A clock of this machine
    /// that is certainly wrong confirms and contradicts nothing; then one month more may have
    /// begun while no node ran.
    fn is_plausible(&self, store_now: i64, unix_now: i64) -> bool {
        let month = Month::containing(store_now);
        let machine = Month::containing(unix_now + TOLERANCE);
        match self.known {
            Some(known) if month < known => agree(store_now, unix_now),
            Some(known) if month == known || month <= machine => true,
            Some(known) => machine < known && month.number() == known.number() + 1,
            None => month <= machine || unix_now < EARLIEST,
        }
    }

    fn believe(&mut self, offset: i64) {
        self.offset = offset;
        (self.store_doubt, self.machine_doubt) = (None, None);
    }

    /// Believes a clock that agrees, that a second one confirms, or that has been steady for long
    /// enough; a steady one alone leads to no month before the latest. What is to be told of it.
    fn weigh(
        &mut self,
        clock: Clock,
        offset: i64,
        passed: i64,
        second: Option<i64>,
        latest: Month,
    ) -> Option<String> {
        let doubt = match clock {
            Clock::Store => &mut self.store_doubt,
            Clock::Machine => &mut self.machine_doubt,
        };
        if agree(offset, self.offset) {
            *doubt = None;
            // A second more or less is the fractions of two clocks.
            if (offset - self.offset).abs() > 1 {
                self.offset = offset;
            }
            return None;
        }
        let by = offset - self.offset;
        let held = doubt.filter(|doubt| agree(doubt.offset, offset));
        let is_steady = held.is_some_and(|doubt| passed - doubt.since >= HOLD)
            && Month::containing(passed + offset) >= latest;
        if is_steady || second.is_some_and(|second| agree(offset, second)) {
            self.believe(offset);
            return Some(format!("a clock that jumped by {by} s is believed now"));
        }
        if held.is_none() {
            *doubt = Some(Doubt { offset, since: passed });
            let name = clock.name();
            return Some(format!("{name} clock jumped by {by} s: held for ten minutes"));
        }
        None
    }
}

fn agree(a: i64, b: i64) -> bool {
    (a - b).abs() <= TOLERANCE
}

#[cfg(test)]
mod tests;
