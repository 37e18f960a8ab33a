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
use crate::model::month::{Month, format_rfc3339};

/// Clocks may be apart by this many seconds and still agree.
const MAX_SKEW_SECONDS: i64 = 5;
/// A jump is believed after this many seconds of steady agreement with itself.
const JUMP_CONFIRM_SECONDS: i64 = 600;
/// 2025-01-01T00:00:00Z. A clock that shows less was never set, and confirms nothing.
const EARLIEST_VALID_TIME: i64 = 1_735_689_600;

pub(super) struct Calendar {
    latest: AtomicU16,
    /// The believed time minus the time that passed.
    offset: AtomicI64,
    clock_state: Mutex<ClockState>,
}

struct ClockState {
    offset: i64,
    /// The month that some node had counted in before the start.
    known_month: Option<Month>,
    has_observed_store: bool,
    /// The store's clock was believed at least once. Then this machine's moves nothing any more.
    follows_store: bool,
    store_jump: Option<ClockJump>,
    machine_jump: Option<ClockJump>,
}

/// A clock that shows another time than the believed one.
#[derive(Clone, Copy)]
struct ClockJump {
    /// What it shows minus the time that passed, and the moment since which it has done so.
    offset: i64,
    since: i64,
}

/// Whose clock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockSource {
    StoreUnavailable,
    Machine,
}

impl Calendar {
    /// Believes this machine's clock at the start, unless it shows a time before `latest`, which
    /// some node counted in, or more than a month beyond it. Then it is as if that month had just
    /// begun. `unix_now` and `passed` are seconds of the clock and of the time that passed.
    pub(super) fn new(latest: Option<Month>, unix_now: i64, boottime: i64) -> Calendar {
        let now = Month::containing(unix_now);
        let is_implausible = |latest: &Month| now < *latest || now.number() > latest.number() + 1;
        let believed = latest.filter(is_implausible).map_or(unix_now, Month::start);
        let offset = believed - boottime;
        let calendar = Calendar {
            latest: AtomicU16::new(Month::containing(believed).number()),
            offset: AtomicI64::new(offset),
            clock_state: Mutex::new(ClockState {
                offset,
                known_month: latest,
                has_observed_store: false,
                follows_store: false,
                store_jump: None,
                machine_jump: None,
            }),
        };
        calendar.observe_machine_clock(unix_now, boottime);
        calendar
    }

    /// The believed time, in Unix seconds. Takes no lock.
    pub(super) fn now(&self, boottime: i64) -> i64 {
        boottime + self.offset.load(Ordering::Relaxed)
    }

    /// The latest month that is believed in.
    pub(super) fn latest_month(&self) -> Month {
        Month::from_number(self.latest.load(Ordering::Relaxed)).unwrap_or(Month::LAST)
    }

    /// The month that a call at this believed time belongs to. Takes a lock only at a month's
    /// turn: the time is looked at once more then, since it may have been corrected meanwhile.
    pub(super) fn month_at(&self, now: i64, boottime: impl FnOnce() -> i64) -> Month {
        if Month::containing(now) <= self.latest_month() {
            return self.latest_month();
        }
        let belief = lock(&self.clock_state);
        let month = Month::containing(boottime() + belief.offset);
        self.latest.fetch_max(month.number(), Ordering::Relaxed);
        self.latest_month()
    }

    /// The month that other nodes may be told: by the store's clock, once that was believed, and
    /// never by this machine's alone.
    pub(super) fn store_month(&self, boottime: i64) -> Option<Month> {
        let belief = lock(&self.clock_state);
        belief.follows_store.then(|| Month::containing(boottime + belief.offset))
    }

    /// Looks at this machine's clock. It moves the believed time only where the store's never did.
    pub(super) fn observe_machine_clock(&self, unix_now: i64, boottime: i64) {
        let mut belief = lock(&self.clock_state);
        if !belief.follows_store {
            let warning = belief.assess_clock(
                ClockSource::Machine,
                unix_now - boottime,
                boottime,
                None,
                self.latest_month(),
            );
            self.publish_offset(belief, warning);
        }
    }

    /// Looks at the store's clock, by which all nodes go, with this machine's as a second one.
    pub(super) fn observe_store_clock(&self, store_now: i64, unix_now: i64, boottime: i64) {
        let mut belief = lock(&self.clock_state);
        let is_first = !std::mem::replace(&mut belief.has_observed_store, true);
        let (offset, machine) = (store_now - boottime, unix_now - boottime);
        let mut warning = None;
        if is_first && belief.is_plausible(store_now, unix_now) {
            // What this machine said before counts for nothing: no call was counted by it yet.
            let now = Month::containing(store_now);
            let month = belief.known_month.map_or(now, |known| known.max(now));
            self.latest.store(month.number(), Ordering::Relaxed);
            belief.accept_offset(offset);
        } else {
            warning = belief.assess_clock(
                ClockSource::StoreUnavailable,
                offset,
                boottime,
                Some(machine),
                self.latest_month(),
            );
        }
        belief.follows_store |= belief.store_jump.is_none();
        self.publish_offset(belief, warning);
        // Only where the store's clock was never believed.
        self.observe_machine_clock(unix_now, boottime);
    }

    fn publish_offset(&self, belief: MutexGuard<'_, ClockState>, warning: Option<String>) {
        self.offset.store(belief.offset, Ordering::Relaxed);
        // Not with the lock in hand: a log may take its time.
        drop(belief);
        if let Some(warning) = warning {
            log::warn!("{warning}");
        }
    }

    /// What an operator should know of the clocks: which one is doubted, and whether calls were
    /// counted in a month that has not begun.
    pub(super) fn problem(&self, boottime: i64) -> Option<String> {
        let belief = lock(&self.clock_state);
        let latest = self.latest_month();
        let now = Month::containing(boottime + belief.offset);
        let doubts = [
            (ClockSource::StoreUnavailable, belief.store_jump),
            (ClockSource::Machine, belief.machine_jump),
        ];
        let doubted = doubts.into_iter().find_map(|(clock, jump)| Some((clock, jump?)));
        let counted = |now: Month| {
            let repair = format!("`riskgate store repair-month {now}`");
            format!("calls of {latest} were counted; if that was wrong, {repair}")
        };
        match doubted {
            Some((clock, jump)) => {
                let shown = boottime + jump.offset;
                let (name, time) = (clock.name(), format_rfc3339(shown));
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

impl ClockSource {
    fn name(self) -> &'static str {
        match self {
            ClockSource::StoreUnavailable => "the store's",
            ClockSource::Machine => "this machine's",
        }
    }
}

impl ClockState {
    /// Whether the first word of the store's clock can be believed at once: it brings no month
    /// forward, or this machine's clock says too that the month has begun. A clock of this machine
    /// that is certainly wrong confirms and contradicts nothing; then one month more may have
    /// begun while no node ran.
    fn is_plausible(&self, store_now: i64, unix_now: i64) -> bool {
        let month = Month::containing(store_now);
        let machine = Month::containing(unix_now + MAX_SKEW_SECONDS);
        match self.known_month {
            Some(known) if month < known => is_within_tolerance(store_now, unix_now),
            Some(known) if month == known || month <= machine => true,
            Some(known) => machine < known && month.number() == known.number() + 1,
            None => month <= machine || unix_now < EARLIEST_VALID_TIME,
        }
    }

    fn accept_offset(&mut self, offset: i64) {
        self.offset = offset;
        (self.store_jump, self.machine_jump) = (None, None);
    }

    /// Believes a clock that agrees, that a second one confirms, or that has been steady for long
    /// enough; a steady one alone leads to no month before the latest. What is to be told of it.
    fn assess_clock(
        &mut self,
        clock: ClockSource,
        offset: i64,
        boottime: i64,
        other_offset: Option<i64>,
        latest: Month,
    ) -> Option<String> {
        let jump = match clock {
            ClockSource::StoreUnavailable => &mut self.store_jump,
            ClockSource::Machine => &mut self.machine_jump,
        };
        if is_within_tolerance(offset, self.offset) {
            *jump = None;
            // A second more or less is the fractions of two clocks.
            if (offset - self.offset).abs() > 1 {
                self.offset = offset;
            }
            return None;
        }
        let by = offset - self.offset;
        let held = jump.filter(|jump| is_within_tolerance(jump.offset, offset));
        let is_steady = held.is_some_and(|jump| boottime - jump.since >= JUMP_CONFIRM_SECONDS)
            && Month::containing(boottime + offset) >= latest;
        if is_steady
            || other_offset.is_some_and(|other_offset| is_within_tolerance(offset, other_offset))
        {
            self.accept_offset(offset);
            return Some(format!("a clock that jumped by {by} s is now accepted"));
        }
        if held.is_none() {
            *jump = Some(ClockJump { offset, since: boottime });
            let name = clock.name();
            return Some(format!("{name} clock jumped by {by} s: held for ten minutes"));
        }
        None
    }
}

fn is_within_tolerance(a: i64, b: i64) -> bool {
    (a - b).abs() <= MAX_SKEW_SECONDS
}

#[cfg(test)]
mod tests;
