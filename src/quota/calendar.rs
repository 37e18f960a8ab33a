//! The believed time and the current month, derived from the clocks of the store and of this
//! machine.
//!
//! The believed time is CLOCK_BOOTTIME, which nobody sets and which goes on through sleep, plus an
//! offset that only this file changes. If the store has a clock of its own, all nodes follow that
//! clock. If a clock disagrees with the believed time, its jump is held until the other clock
//! confirms it or it has been steady for ten minutes; meanwhile the believed time goes on. A month
//! that has ended never begins again. This file reads no clock: callers pass `boottime`,
//! CLOCK_BOOTTIME in seconds.

use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::sync::lock;
use crate::model::month::{Month, format_rfc3339};

/// Clocks that differ by at most this many seconds agree.
const MAX_SKEW_SECONDS: i64 = 5;
/// A jump is accepted once the clock has agreed with itself for this many seconds.
const JUMP_CONFIRM_SECONDS: i64 = 600;
/// 2025-01-01T00:00:00Z. A clock that shows an earlier time was never set, so it confirms nothing.
const EARLIEST_VALID_TIME: i64 = 1_735_689_600;

pub(super) struct Calendar {
    latest: AtomicU16,
    /// The believed time minus CLOCK_BOOTTIME.
    offset: AtomicI64,
    clock_state: Mutex<ClockState>,
}

struct ClockState {
    offset: i64,
    /// The latest month in which some node had counted before this start.
    known_month: Option<Month>,
    has_observed_store: bool,
    /// The store's clock has been accepted at least once. From then on this machine's clock changes
    /// nothing.
    follows_store: bool,
    store_jump: Option<ClockJump>,
    machine_jump: Option<ClockJump>,
}

/// A jump of a clock: it shows another time than the believed one.
#[derive(Clone, Copy)]
struct ClockJump {
    /// The time that the clock shows minus CLOCK_BOOTTIME, and the boot time since which it has
    /// shown this.
    offset: i64,
    since: i64,
}

/// A clock that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockSource {
    Store,
    Machine,
}

impl Calendar {
    /// Starts with this machine's clock, unless it shows a time before `latest`, in which some node
    /// has counted, or more than a month after it. In that case the believed time starts at the
    /// beginning of `latest`. `unix_now` and `boottime` are in seconds.
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

    /// The latest month that has begun by the believed time.
    pub(super) fn latest_month(&self) -> Month {
        Month::from_number(self.latest.load(Ordering::Relaxed)).unwrap_or(Month::LAST)
    }

    /// The month of a call at this believed time. Takes a lock only when a month begins: the offset
    /// may have been corrected meanwhile, so the time is computed again.
    pub(super) fn month_at(&self, now: i64, boottime: impl FnOnce() -> i64) -> Month {
        let latest = self.latest_month();
        if now < latest.end() {
            return latest;
        }
        let state = lock(&self.clock_state);
        let month = Month::containing(boottime() + state.offset);
        self.latest.fetch_max(month.number(), Ordering::Relaxed);
        self.latest_month()
    }

    /// The month to report to other nodes: by the store's clock once that was accepted, never by
    /// this machine's clock alone.
    pub(super) fn store_month(&self, boottime: i64) -> Option<Month> {
        let state = lock(&self.clock_state);
        state.follows_store.then(|| Month::containing(boottime + state.offset))
    }

    /// Observes this machine's clock. It changes the believed time only if the store's clock was
    /// never accepted.
    pub(super) fn observe_machine_clock(&self, unix_now: i64, boottime: i64) {
        let mut state = lock(&self.clock_state);
        if !state.follows_store {
            let warning = state.assess_clock(
                ClockSource::Machine,
                unix_now - boottime,
                boottime,
                None,
                self.latest_month(),
            );
            self.publish_offset(state, warning);
        }
    }

    /// Observes the store's clock, which all nodes follow, with this machine's clock to confirm it.
    pub(super) fn observe_store_clock(&self, store_now: i64, unix_now: i64, boottime: i64) {
        let mut state = lock(&self.clock_state);
        let is_first = !std::mem::replace(&mut state.has_observed_store, true);
        let (offset, machine) = (store_now - boottime, unix_now - boottime);
        let mut warning = None;
        if is_first && state.is_plausible(store_now, unix_now) {
            // The time that this machine's clock gave before is dropped: no call has been counted
            // by it yet.
            let now = Month::containing(store_now);
            let month = state.known_month.map_or(now, |known| known.max(now));
            self.latest.store(month.number(), Ordering::Relaxed);
            state.accept_offset(offset);
        } else {
            warning = state.assess_clock(
                ClockSource::Store,
                offset,
                boottime,
                Some(machine),
                self.latest_month(),
            );
        }
        state.follows_store |= state.store_jump.is_none();
        self.publish_offset(state, warning);
        // Has an effect only if the store's clock was never accepted.
        self.observe_machine_clock(unix_now, boottime);
    }

    fn publish_offset(&self, state: MutexGuard<'_, ClockState>, warning: Option<String>) {
        self.offset.store(state.offset, Ordering::Relaxed);
        // Not under the lock, because writing a log may take time.
        drop(state);
        if let Some(warning) = warning {
            log::warn!("{warning}");
        }
    }

    /// The problem that an operator should know of: a clock whose jump is held, or calls that were
    /// counted in a month that has not begun.
    pub(super) fn problem(&self, boottime: i64) -> Option<String> {
        let state = lock(&self.clock_state);
        let latest = self.latest_month();
        let now = Month::containing(boottime + state.offset);
        let jumps =
            [(ClockSource::Store, state.store_jump), (ClockSource::Machine, state.machine_jump)];
        let held_jump = jumps.into_iter().find_map(|(clock, jump)| Some((clock, jump?)));
        let advise_repair = |now: Month| {
            let repair = format!("`riskgate store repair-month {now}`");
            format!("calls of {latest} were counted; if that was wrong, {repair}")
        };
        match held_jump {
            Some((clock, jump)) => {
                let shown = boottime + jump.offset;
                let (name, time) = (clock.name(), format_rfc3339(shown));
                let month = Month::containing(shown);
                let advise_wait =
                    || "held until it is confirmed or was steady for ten minutes".to_owned();
                let advice = if month < latest { advise_repair(month) } else { advise_wait() };
                Some(format!("{name} clock says {time}: {advice}"))
            }
            None if now < latest => Some(format!("it is {now}, but {}", advise_repair(now))),
            None => None,
        }
    }
}

impl ClockSource {
    fn name(self) -> &'static str {
        match self {
            ClockSource::Store => "the store's",
            ClockSource::Machine => "this machine's",
        }
    }
}

impl ClockState {
    /// Returns true if the first reading of the store's clock can be accepted at once: it starts no
    /// new month, or this machine's clock agrees that the month has begun. A clock of this machine
    /// that is certainly wrong neither confirms nor contradicts; then one new month is plausible,
    /// because it may have begun while no node ran.
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

    /// Accepts a clock that agrees, that the other clock confirms, or that has been steady long
    /// enough. A steady clock alone never leads back to a month before `latest`. Returns a warning
    /// to log, if any.
    fn assess_clock(
        &mut self,
        clock: ClockSource,
        offset: i64,
        boottime: i64,
        other_offset: Option<i64>,
        latest: Month,
    ) -> Option<String> {
        let jump = match clock {
            ClockSource::Store => &mut self.store_jump,
            ClockSource::Machine => &mut self.machine_jump,
        };
        if is_within_tolerance(offset, self.offset) {
            *jump = None;
            // A difference of one second comes from the fractions of the two clocks.
            if (offset - self.offset).abs() > 1 {
                self.offset = offset;
            }
            return None;
        }
        let jump_seconds = offset - self.offset;
        let same_jump = jump.filter(|jump| is_within_tolerance(jump.offset, offset));
        let is_steady = same_jump.is_some_and(|jump| boottime - jump.since >= JUMP_CONFIRM_SECONDS)
            && Month::containing(boottime + offset) >= latest;
        if is_steady
            || other_offset.is_some_and(|other_offset| is_within_tolerance(offset, other_offset))
        {
            self.accept_offset(offset);
            return Some(format!("a clock that jumped by {jump_seconds} s is now accepted"));
        }
        if same_jump.is_none() {
            *jump = Some(ClockJump { offset, since: boottime });
            let name = clock.name();
            return Some(format!("{name} clock jumped by {jump_seconds} s: held for ten minutes"));
        }
        None
    }
}

fn is_within_tolerance(a: i64, b: i64) -> bool {
    (a - b).abs() <= MAX_SKEW_SECONDS
}

#[cfg(test)]
mod tests;
