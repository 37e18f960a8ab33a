//! The believed time and the current month, derived from the clocks of the store and of this
//! machine.
//!
//! The believed time is CLOCK_BOOTTIME plus an offset that only this file changes. Nobody can set
//! CLOCK_BOOTTIME, and CLOCK_BOOTTIME counts even while the machine sleeps. Once a server's clock
//! has been accepted, the offset follows that clock. Before that, and with SQLite, the offset
//! follows this machine's system clock.
//!
//! If the followed clock jumps, the jump is held: the believed time ignores the jump and advances
//! by CLOCK_BOOTTIME alone. A jump to a time before 2025 is never accepted. Any other jump is
//! accepted in two cases:
//! - The clock has kept to the jump for ten minutes, and does not lead back to an earlier month.
//! - The jump is one of the store's clock, and this machine's clock has already shown the same time
//!   for ten minutes. If both clocks jump at once, neither confirms the other: a host with gateway
//!   and server has only one clock.
//!
//! A month that has ended begins again only if an operator repairs the month. But as long as no
//! call of a month was reported, a month that only this machine's clock began can be replaced: by
//! what the store knows of the time, and by the first reading of the store's clock if that reading
//! is accepted at once.
//!
//! At the start, the calendar compares this machine's clock with what the store knows of the time.
//! If that clock was never set or contradicts the store, and CLOCK_BOOTTIME does not tell the time,
//! the believed time is a lower bound: the latest time that the store knows, or the beginning of
//! 2025. The lower bound ends in three cases:
//! - This machine's clock contradicts nothing any more, and shows a month that has begun. If this
//!   machine's clock was never set before, it may begin a month.
//! - The first reading of the store's clock contradicts nothing.
//! - A clock agrees with the believed time, or a held jump is accepted.
//!
//! This file reads no clock: callers pass `boottime`, CLOCK_BOOTTIME in seconds.

use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::known_time::{EARLIEST_VALID_TIME, KnownTime, is_within_tolerance};
use super::sync::lock_ignoring_poison;
use crate::model::believed_time::{BelievedTime, TimeTrust};
use crate::model::month::{Month, format_rfc3339};

/// For how many seconds a clock must be steady before riskgate accepts its jump, and before the
/// believed time is settled.
const JUMP_CONFIRM_SECONDS: i64 = 600;

pub(super) struct Calendar {
    /// The number of the latest month that has begun.
    latest_month: AtomicU16,
    /// The believed time minus CLOCK_BOOTTIME, in seconds; readers need no lock.
    boottime_offset: AtomicI64,
    clock_state: Mutex<ClockState>,
    /// Whether the calendar logs what clocks do.
    has_log: bool,
}

/// What the observed clocks have shown.
#[derive(Default)]
struct ClockState {
    /// The believed time minus CLOCK_BOOTTIME, in seconds.
    boottime_offset: i64,
    /// What the store knew of the time when this process first read it.
    known_at_start: KnownTime,
    /// No clock has been accepted yet, so the believed time is a lower bound.
    is_lower_bound: bool,
    /// This machine's clock has shown a time from [`EARLIEST_VALID_TIME`] on: somebody has set it.
    was_machine_set: bool,
    /// The CLOCK_BOOTTIME, in seconds, since which no clock has contradicted the believed time.
    /// While a jump is held, this value means nothing.
    agreed_since_boottime: i64,
    has_read_machine_clock: bool,
    has_read_store_clock: bool,
    /// The store's clock has been accepted at least once. From then on the believed time never
    /// follows this machine's clock, which only confirms or contradicts the store's clock.
    follows_store_clock: bool,
    held_store_jump: Option<ClockJump>,
    held_machine_jump: Option<ClockJump>,
}

/// A jump of a clock: the clock shows a time other than the believed time.
#[derive(Clone, Copy)]
struct ClockJump {
    /// The time that the clock shows minus CLOCK_BOOTTIME, in seconds.
    boottime_offset: i64,
    /// The CLOCK_BOOTTIME, in seconds, at which the clock was first seen to show this offset.
    first_seen_boottime: i64,
}

/// A clock that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockSource {
    Store,
    Machine,
}

impl Calendar {
    /// `unix_now` is the time of this machine's clock. The believed time starts with the first of
    /// these that exists:
    /// 1. the present time that the store knows, or `unix_now` if both agree;
    /// 2. `unix_now`, if this machine's clock was set and contradicts nothing that the store knows;
    /// 3. the latest time that the store knows;
    /// 4. [`EARLIEST_VALID_TIME`].
    ///
    /// If `unix_now` does not agree with this time, the jump to `unix_now` is held.
    pub(super) fn new(known: impl Into<KnownTime>, unix_now: i64, boottime: i64) -> Calendar {
        Calendar::start(known.into(), unix_now, boottime, true)
    }

    /// As [`Calendar::new`], but logs nothing: for a caller that asks for
    /// [`Calendar::clock_problem`] once.
    pub(super) fn without_log(known: KnownTime, unix_now: i64, boottime: i64) -> Calendar {
        Calendar::start(known, unix_now, boottime, false)
    }

    fn start(known: KnownTime, unix_now: i64, boottime: i64, has_log: bool) -> Calendar {
        let (believed, is_lower_bound) = match known.present {
            // The former process counted the seconds of this machine's clock.
            Some(present) if is_within_tolerance(present, unix_now) => (unix_now, false),
            Some(present) => (present, false),
            None if known.is_consistent_with(unix_now) => (unix_now, false),
            None => (known.lower_bound().unwrap_or(EARLIEST_VALID_TIME), true),
        };
        let offset = believed - boottime;
        // Until a clock was set for the first time, there is no month.
        let has_month = !is_lower_bound || !known.is_empty();
        let month = if has_month { Month::containing(believed) } else { Month::FIRST };
        let month = known.latest_counted_month.map_or(month, |counted| counted.max(month));
        let calendar = Calendar {
            latest_month: AtomicU16::new(month.number()),
            boottime_offset: AtomicI64::new(offset),
            clock_state: Mutex::new(ClockState {
                boottime_offset: offset,
                known_at_start: known,
                is_lower_bound,
                was_machine_set: unix_now >= EARLIEST_VALID_TIME,
                agreed_since_boottime: boottime,
                ..ClockState::default()
            }),
            has_log,
        };
        calendar.observe_machine_clock(unix_now, boottime);
        calendar
    }

    /// Starts this calendar again with what the store knows of the time, because the store did not
    /// answer at the start. Has no effect once the store's clock was read.
    pub(super) fn learn_known_time(&self, known: KnownTime, unix_now: i64, boottime: i64) {
        let fresh = Calendar::new(known, unix_now, boottime);
        let month = fresh.latest_month();
        let fresh = fresh.clock_state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut state = lock_ignoring_poison(&self.clock_state);
        if state.has_read_store_clock {
            return;
        }
        self.boottime_offset.store(fresh.boottime_offset, Ordering::Relaxed);
        // No call of a later month has been reported yet.
        self.latest_month.store(month.number(), Ordering::Relaxed);
        *state = fresh;
    }

    /// The believed time, in Unix seconds. Takes no lock.
    pub(super) fn believed_now(&self, boottime: i64) -> i64 {
        boottime + self.boottime_offset.load(Ordering::Relaxed)
    }

    /// The believed time, and how far riskgate may trust it.
    pub(super) fn believed_time(&self, boottime: i64) -> BelievedTime {
        let state = lock_ignoring_poison(&self.clock_state);
        let is_held = state.held_store_jump.is_some() || state.held_machine_jump.is_some();
        let is_settled = !is_held && boottime - state.agreed_since_boottime >= JUMP_CONFIRM_SECONDS;
        let trust = match (state.is_lower_bound, is_settled) {
            (true, _) => TimeTrust::LowerBound,
            (false, true) => TimeTrust::Settled,
            (false, false) => TimeTrust::Known,
        };
        BelievedTime { unix_now: boottime + state.boottime_offset, trust }
    }

    /// The believed time for the store to remember. `None` while the believed time is a lower
    /// bound, and while the store has a clock that was never accepted: this machine's clock alone
    /// must not tell other nodes the time.
    pub(super) fn time_to_remember(&self, boottime: i64) -> Option<i64> {
        let state = lock_ignoring_poison(&self.clock_state);
        let is_alone = state.has_read_store_clock && !state.follows_store_clock;
        (!is_alone && !state.is_lower_bound).then(|| boottime + state.boottime_offset)
    }

    /// Returns true if no month is known yet, because no clock was ever set. Until a clock is set,
    /// no call can be counted.
    pub(super) fn waits_for_clock(&self) -> bool {
        self.latest_month() == Month::FIRST
    }

    /// The latest month that has begun. It may be later than the month of the believed time.
    pub(super) fn latest_month(&self) -> Month {
        Month::from_number(self.latest_month.load(Ordering::Relaxed)).unwrap_or(Month::LAST)
    }

    /// The month that a call at this believed time belongs to: the latest month that has begun. If
    /// the time would begin a month, the month is computed again from `boottime` under a lock,
    /// because the offset may have been corrected since the caller read the time. A lower bound
    /// begins no month.
    pub(super) fn month_to_charge(
        &self,
        believed_now: i64,
        boottime: impl FnOnce() -> i64,
    ) -> Month {
        let latest = self.latest_month();
        if believed_now < latest.end() {
            return latest;
        }
        let state = lock_ignoring_poison(&self.clock_state);
        if state.is_lower_bound {
            return latest;
        }
        let month = Month::containing(boottime() + state.boottime_offset);
        self.latest_month.fetch_max(month.number(), Ordering::Relaxed);
        self.latest_month()
    }

    /// The month to announce to other nodes. `None` until the store's clock has been accepted,
    /// because this machine's clock alone must not advance the month of other nodes.
    pub(super) fn month_by_store_clock(&self, boottime: i64) -> Option<Month> {
        let state = lock_ignoring_poison(&self.clock_state);
        state.follows_store_clock.then(|| Month::containing(boottime + state.boottime_offset))
    }

    /// Observes this machine's clock. Has no effect once the store's clock was accepted.
    pub(super) fn observe_machine_clock(&self, unix_now: i64, boottime: i64) {
        let mut state = lock_ignoring_poison(&self.clock_state);
        if !state.follows_store_clock {
            let latest_month = self.latest_month();
            if state.is_lower_bound && state.ends_lower_bound(unix_now, boottime, latest_month) {
                state.accept_offset(unix_now - boottime, boottime);
            }
            state.was_machine_set |= unix_now >= EARLIEST_VALID_TIME;
            let offset = unix_now - boottime;
            let warning = state.apply_reading(ClockSource::Machine, offset, boottime, latest_month);
            state.has_read_machine_clock = true;
            self.publish_offset(state, boottime, warning);
        }
    }

    /// Observes the store's clock, which all nodes follow. `unix_now` is the time of this machine's
    /// clock, which can confirm a jump of the store's clock.
    pub(super) fn observe_store_clock(&self, store_now: i64, unix_now: i64, boottime: i64) {
        let mut state = lock_ignoring_poison(&self.clock_state);
        let is_first = !state.has_read_store_clock;
        let (offset, machine) = (store_now - boottime, unix_now - boottime);
        let mut warning = None;
        if is_first && state.known_at_start.accepts_first_store_time(store_now, unix_now) {
            // The month by this machine's clock is discarded, even if it is later than the store's:
            // no call of that month has been reported yet.
            let now = Month::containing(store_now);
            let counted = state.known_at_start.latest_counted_month;
            let month = counted.map_or(now, |known| known.max(now));
            self.latest_month.store(month.number(), Ordering::Relaxed);
            state.accept_offset(offset, boottime);
        } else {
            let latest_month = self.latest_month();
            warning = state.apply_reading(ClockSource::Store, offset, boottime, latest_month);
        }
        state.has_read_store_clock = true;
        state.follows_store_clock |= state.held_store_jump.is_none() && !state.is_lower_bound;
        if state.follows_store_clock {
            warning = warning.or(state.record_machine_offset(machine, boottime));
        }
        self.publish_offset(state, boottime, warning);
        // Has an effect only if the store's clock was never accepted.
        self.observe_machine_clock(unix_now, boottime);
    }

    fn publish_offset(
        &self,
        state: MutexGuard<'_, ClockState>,
        boottime: i64,
        warning: Option<String>,
    ) {
        if !state.is_lower_bound && self.waits_for_clock() {
            let month = Month::containing(boottime + state.boottime_offset);
            self.latest_month.store(month.number(), Ordering::Relaxed);
        }
        self.boottime_offset.store(state.boottime_offset, Ordering::Relaxed);
        // The lock is released first, because writing a log may take time.
        drop(state);
        if let Some(warning) = warning.filter(|_| self.has_log) {
            log::warn!("{warning}");
        }
    }

    /// A problem that an operator should know of: a clock whose jump is held, or calls that were
    /// counted in a month that has not begun. `None` if there is no problem.
    pub(super) fn clock_problem(&self, boottime: i64) -> Option<String> {
        let state = lock_ignoring_poison(&self.clock_state);
        let latest = self.latest_month();
        let now = Month::containing(boottime + state.boottime_offset);
        let jumps = [
            (ClockSource::Store, state.held_store_jump),
            (ClockSource::Machine, state.held_machine_jump),
        ];
        let held_jump = jumps.into_iter().find_map(|(clock, jump)| Some((clock, jump?)));
        let advise_repair = |now: Month| {
            let repair = format!("`riskgate store repair-month {now}`");
            format!("calls of {latest} were counted; if that was wrong, {repair}")
        };
        match held_jump {
            Some((clock, jump)) if boottime + jump.boottime_offset < EARLIEST_VALID_TIME => {
                let (name, shown) = (clock.possessive_name(), boottime + jump.boottime_offset);
                let wait = match self.waits_for_clock() {
                    true => "riskgate waits until it is set, and answers calls with 500 until then",
                    false => "riskgate ignores it until it is set",
                };
                Some(format!(
                    "{name} clock says {}, so it was never set: {wait}",
                    format_rfc3339(shown)
                ))
            }
            Some((ClockSource::Machine, jump)) if state.follows_store_clock => Some(format!(
                "this machine's clock says {}, but that of the store {}: riskgate follows the \
                 store's, and deletes nothing until both agree",
                format_rfc3339(boottime + jump.boottime_offset),
                format_rfc3339(boottime + state.boottime_offset)
            )),
            Some((clock, jump)) => {
                let shown = boottime + jump.boottime_offset;
                let (name, time) = (clock.possessive_name(), format_rfc3339(shown));
                let month = Month::containing(shown);
                let advise_wait = || "held until it was steady for ten minutes".to_owned();
                let advice = if month < latest { advise_repair(month) } else { advise_wait() };
                Some(format!("{name} clock says {time}: {advice}"))
            }
            None if now < latest => Some(format!("it is {now}, but {}", advise_repair(now))),
            None => None,
        }
    }
}

impl ClockSource {
    fn possessive_name(self) -> &'static str {
        match self {
            ClockSource::Store => "the store's",
            ClockSource::Machine => "this machine's",
        }
    }

    /// What the first reading of the clock is compared with.
    fn compared_at_start(self) -> &'static str {
        match self {
            ClockSource::Store => "the time that riskgate believes",
            ClockSource::Machine => "the time that the store knows",
        }
    }
}

impl ClockState {
    /// Returns true if this reading of this machine's clock ends the lower bound. The reading must
    /// contradict nothing that the store knows, and must not be before the believed time. If the
    /// clock was set to a wrong time before, the reading must not begin a month, because the clock
    /// may be wrong again.
    fn ends_lower_bound(&self, unix_now: i64, boottime: i64, latest_month: Month) -> bool {
        self.known_at_start.is_consistent_with(unix_now)
            && unix_now >= boottime + self.boottime_offset
            && (!self.was_machine_set || Month::containing(unix_now) <= latest_month)
    }

    fn has_read(&self, clock: ClockSource) -> bool {
        match clock {
            ClockSource::Store => self.has_read_store_clock,
            ClockSource::Machine => self.has_read_machine_clock,
        }
    }

    fn accept_offset(&mut self, offset: i64, boottime: i64) {
        self.boottime_offset = offset;
        self.is_lower_bound = false;
        self.agreed_since_boottime = boottime;
        (self.held_store_jump, self.held_machine_jump) = (None, None);
    }

    /// Remembers whether this machine's clock contradicts the believed time, which follows the
    /// store's clock. During a contradiction, riskgate deletes nothing by its age. Returns a
    /// warning to log if this machine's clock is at a new offset.
    fn record_machine_offset(&mut self, offset: i64, boottime: i64) -> Option<String> {
        if is_within_tolerance(offset, self.boottime_offset) {
            self.held_machine_jump = None;
            return None;
        }
        self.agreed_since_boottime = boottime;
        let known = self.held_machine_jump;
        if known.is_some_and(|jump| is_within_tolerance(jump.boottime_offset, offset)) {
            return None;
        }
        self.held_machine_jump =
            Some(ClockJump { boottime_offset: offset, first_seen_boottime: boottime });
        let seconds = offset - self.boottime_offset;
        Some(format!(
            "this machine's clock is {seconds} s from the store's, which riskgate follows"
        ))
    }

    /// Applies one reading of a clock:
    /// - If the clock agrees with the believed time, a difference of more than one second is
    ///   adopted.
    /// - A jump to a time before [`EARLIEST_VALID_TIME`] is held.
    /// - A jump is accepted if the clock has been steady for [`JUMP_CONFIRM_SECONDS`], and its
    ///   month is not before `latest_month`.
    /// - A jump of the store's clock is accepted if this machine's clock has shown the same time
    ///   for [`JUMP_CONFIRM_SECONDS`].
    /// - Any other jump is held.
    ///
    /// Returns a warning to log if a jump is accepted, or held for the first time. The first
    /// reading of a clock shows a difference, but no jump.
    fn apply_reading(
        &mut self,
        clock: ClockSource,
        offset: i64,
        boottime: i64,
        latest_month: Month,
    ) -> Option<String> {
        let is_steady = |jump: &ClockJump| {
            is_within_tolerance(jump.boottime_offset, offset)
                && boottime - jump.first_seen_boottime >= JUMP_CONFIRM_SECONDS
        };
        let is_confirmed =
            clock == ClockSource::Store && self.held_machine_jump.as_ref().is_some_and(is_steady);
        let jump = match clock {
            ClockSource::Store => &mut self.held_store_jump,
            ClockSource::Machine => &mut self.held_machine_jump,
        };
        if is_within_tolerance(offset, self.boottime_offset) {
            if jump.take().is_some() || self.is_lower_bound {
                self.agreed_since_boottime = boottime;
            }
            self.is_lower_bound = false;
            // The seconds of two clocks begin at different moments, so they may differ by one.
            if (offset - self.boottime_offset).abs() > 1 {
                self.boottime_offset = offset;
            }
            return None;
        }
        let jump_seconds = offset - self.boottime_offset;
        let same_jump = jump.filter(|jump| is_within_tolerance(jump.boottime_offset, offset));
        let is_steady = same_jump.as_ref().is_some_and(is_steady)
            && Month::containing(boottime + offset) >= latest_month;
        let was_set = boottime + offset >= EARLIEST_VALID_TIME;
        if was_set && (is_steady || is_confirmed) {
            self.accept_offset(offset, boottime);
            return Some(format!("a clock that jumped by {jump_seconds} s is now accepted"));
        }
        if same_jump.is_none() {
            *jump = Some(ClockJump { boottime_offset: offset, first_seen_boottime: boottime });
            let (name, shown) = (clock.possessive_name(), format_rfc3339(boottime + offset));
            return Some(match was_set {
                true if self.has_read(clock) => {
                    format!("{name} clock jumped by {jump_seconds} s: held for ten minutes")
                }
                true => format!(
                    "{name} clock differs from {} by {jump_seconds} s: held for ten minutes",
                    clock.compared_at_start()
                ),
                false => {
                    format!("{name} clock says {shown}, so it was never set: ignored until it is")
                }
            });
        }
        None
    }
}

#[cfg(test)]
mod tests;
