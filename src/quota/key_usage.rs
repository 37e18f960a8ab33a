//! The calls of each key by day and route, as this node has counted them.
//!
//! To count a call, riskgate changes one counter with a compare-and-swap. riskgate takes a lock
//! only if the counter is of another day. The lease reports carry the changed counts to the store,
//! so a crash loses only the counts that no acknowledged report carried.

use std::array;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock_ignoring_poison};
use crate::model::month::Month;
use crate::model::route_label::RouteLabel;
use crate::store::UsageCount;

/// How many past days' counts a key keeps although the store has them, so that the node can report
/// these counts again after the store lost data.
const KEPT_PAST_DAYS: usize = 2;

/// A day of a month in 17 bits: the number of the month, and in the lowest five bits the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageDay(u32);

/// The day of a counter that has counted nothing.
const NO_DAY: UsageDay = UsageDay(0);

impl UsageDay {
    const DAY_BITS: u32 = 5;

    /// Packs a month and a day, which counts from 1.
    pub fn new(month: Month, day: u8) -> UsageDay {
        UsageDay(u32::from(month.number()) << UsageDay::DAY_BITS | u32::from(day))
    }

    fn month_and_day(self) -> Option<(Month, u8)> {
        let month = Month::from_number((self.0 >> UsageDay::DAY_BITS) as u16)?;
        Some((month, (self.0 & ((1 << UsageDay::DAY_BITS) - 1)) as u8))
    }
}

/// Remembers the day that was found last, so that a request rarely computes a date.
#[derive(Default)]
pub(super) struct DayCache {
    /// The days since 1970, and in the lowest 17 bits the [`UsageDay`].
    latest: AtomicU64,
}

impl DayCache {
    const USAGE_DAY_BITS: u32 = 17;

    /// Finds the day of `month` at this time.
    pub(super) fn find_day(&self, month: Month, unix_seconds: i64) -> UsageDay {
        let days_since_1970 = unix_seconds.max(0).cast_unsigned() / 86_400;
        let known = self.latest.load(Ordering::Relaxed);
        let known_day = UsageDay((known & ((1 << DayCache::USAGE_DAY_BITS) - 1)) as u32);
        let is_of_month = known_day.0 >> UsageDay::DAY_BITS == u32::from(month.number());
        if known >> DayCache::USAGE_DAY_BITS == days_since_1970 && is_of_month {
            return known_day;
        }
        let day = UsageDay::new(month, month.day_at(unix_seconds));
        let word = days_since_1970 << DayCache::USAGE_DAY_BITS | u64::from(day.0);
        self.latest.store(word, Ordering::Relaxed);
        day
    }
}

/// A day and the calls on it in one word: 17 bits of the day, and 47 of the calls.
#[derive(Clone, Copy)]
struct DayCount(u64);

impl DayCount {
    const CALL_BITS: u32 = 47;

    fn new(day: UsageDay, calls: u64) -> DayCount {
        DayCount(u64::from(day.0) << DayCount::CALL_BITS | calls & ((1 << DayCount::CALL_BITS) - 1))
    }

    fn day(self) -> UsageDay {
        UsageDay((self.0 >> DayCount::CALL_BITS) as u32)
    }

    fn calls(self) -> u64 {
        self.0 & ((1 << DayCount::CALL_BITS) - 1)
    }
}

/// The calls of one key.
pub struct KeyUsage {
    key_id: Arc<str>,
    /// The latest day of each route and its count, as [`DayCount`], in the order of
    /// [`RouteLabel::ALL`].
    latest_day_counts: [AtomicU64; RouteLabel::COUNT],
    past: Mutex<PastCounts>,
}

#[derive(Default)]
struct PastCounts {
    /// The calls of days before the latest one, by day and index of the route.
    calls: BTreeMap<(UsageDay, usize), u64>,
    /// What the store has acknowledged, by day and index of the route.
    reported: BTreeMap<(UsageDay, usize), u64>,
    /// The days that were acknowledged last, the latest of them last.
    recent_days: Vec<UsageDay>,
}

impl KeyUsage {
    fn new(key_id: &str) -> KeyUsage {
        KeyUsage {
            key_id: Arc::from(key_id),
            latest_day_counts: array::from_fn(|_| AtomicU64::new(0)),
            past: Mutex::default(),
        }
    }

    /// Counts calls of this route on this day.
    pub fn count_calls(&self, route: RouteLabel, day: UsageDay, calls: u64) {
        self.change_count(route as usize, day, |known| known + calls);
    }

    /// Subtracts calls that were refunded.
    pub fn uncount_calls(&self, route: RouteLabel, day: UsageDay, calls: u64) {
        self.change_count(route as usize, day, |known| known.saturating_sub(calls));
    }

    fn change_count(&self, route: usize, day: UsageDay, change: impl Fn(u64) -> u64) {
        let counter = &self.latest_day_counts[route];
        let change_latest = |seen| {
            let is_latest = DayCount(seen).day() == day;
            is_latest.then(|| DayCount::new(day, change(DayCount(seen).calls())).0)
        };
        if counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change_latest).is_err() {
            self.change_count_of_another_day(route, day, change);
        }
    }

    /// Changes the count of a day that is not the latest one. If the day is later, it becomes the
    /// latest one, and the count of the former latest day moves to the past counts.
    fn change_count_of_another_day(
        &self,
        route: usize,
        day: UsageDay,
        change: impl Fn(u64) -> u64,
    ) {
        let mut past = self.lock_past();
        let counter = &self.latest_day_counts[route];
        // Only this function changes the day, and it holds the lock.
        let latest_day = DayCount(counter.load(Ordering::Relaxed)).day();
        if latest_day < day {
            let ended = counter.swap(DayCount::new(day, change(0)).0, Ordering::Relaxed);
            // The store may have, or get with the report in flight, a count that was refunded to 0.
            if latest_day != NO_DAY {
                past.calls.insert((latest_day, route), DayCount(ended).calls());
            }
        } else if latest_day > day {
            let calls = past.calls.entry((day, route)).or_default();
            *calls = change(*calls);
        } else {
            drop(past);
            self.change_count(route, day, change);
        }
    }

    fn lock_past(&self) -> MutexGuard<'_, PastCounts> {
        lock_ignoring_poison(&self.past)
    }

    /// Appends the counts that the store has not acknowledged.
    fn collect_changes(&self, changes: &mut Vec<UsageCount>) {
        let past = self.lock_past();
        let latest = self.latest_day_counts.iter().enumerate().map(|(route, counter)| {
            let count = DayCount(counter.load(Ordering::Relaxed));
            ((count.day(), route), count.calls())
        });
        let all = past.calls.iter().map(|(key, calls)| (*key, *calls)).chain(latest);
        for ((day, route), calls) in all {
            let reported = past.reported.get(&(day, route)).copied().unwrap_or(0);
            if let Some((month, day)) = day.month_and_day().filter(|_| calls != reported) {
                let (route, key_id) = (RouteLabel::ALL[route].as_str(), Arc::clone(&self.key_id));
                changes.push(UsageCount { month, day, route, key_id, calls });
            }
        }
    }

    /// Notes that the store has acknowledged this count. Forgets the counts that the store has,
    /// except those of days that were acknowledged lately or may be counted again.
    fn confirm_count(&self, count: &UsageCount) {
        let route = RouteLabel::ALL.iter().position(|label| label.as_str() == count.route);
        let Some(route) = route else { return };
        let day = UsageDay::new(count.month, count.day);
        let mut past = self.lock_past();
        past.reported.insert((day, route), count.calls);
        let PastCounts { calls, reported, recent_days } = &mut *past;
        recent_days.retain(|known| *known != day);
        recent_days.push(day);
        if recent_days.len() > KEPT_PAST_DAYS + 1 {
            recent_days.remove(0);
        }
        // A day later than this one comes again: a clock was ahead. A route's latest day needs its
        // entry in `reported`, because its count is not in `calls`.
        let is_kept = |(of, route): &(UsageDay, usize)| {
            let latest = DayCount(self.latest_day_counts[*route].load(Ordering::Relaxed)).day();
            recent_days.contains(of) || *of > day || *of == latest
        };
        let is_unreported = |key: &_, calls| reported.get(key).copied().unwrap_or(0) != calls;
        calls.retain(|key, calls| is_kept(key) || is_unreported(key, *calls));
        reported.retain(|key, _| is_kept(key) || calls.contains_key(key));
    }
}

/// The usage of all keys of one account that have been used.
#[derive(Default)]
pub(super) struct UsageByKey {
    keys: Mutex<HashMap<Arc<str>, Arc<KeyUsage>>>,
    /// The place in `keys` of the key whose counts the next report carries first: the last report
    /// left them out. So a long series of reports need not pass over the same keys again.
    first_key: AtomicU64,
    /// The counts in the report in flight.
    in_flight: Mutex<Vec<UsageCount>>,
}

impl UsageByKey {
    /// Finds the usage of this key, or creates it if the key has not been used yet.
    pub(super) fn find_or_create(&self, key_id: &str) -> Arc<KeyUsage> {
        let mut keys = lock_ignoring_poison(&self.keys);
        if let Some(usage) = keys.get(key_id) {
            return Arc::clone(usage);
        }
        let usage = Arc::new(KeyUsage::new(key_id));
        keys.insert(Arc::clone(&usage.key_id), Arc::clone(&usage));
        usage
    }

    /// Returns up to `max` counts that the store has not acknowledged, and whether there are no
    /// more of them.
    pub(super) fn collect_changes(&self, max: usize) -> (Vec<UsageCount>, bool) {
        let keys = lock_ignoring_poison(&self.keys);
        let first = self.first_key.load(Ordering::Relaxed) as usize;
        let mut changes = Vec::new();
        for (passed, usage) in keys.values().cycle().skip(first).take(keys.len()).enumerate() {
            usage.collect_changes(&mut changes);
            if changes.len() > max {
                let next = (first + passed) % keys.len();
                self.first_key.store(next as u64, Ordering::Relaxed);
                break;
            }
        }
        let are_all = changes.len() <= max;
        changes.truncate(max);
        (changes, are_all)
    }

    /// Returns true if the store has not acknowledged all counts.
    pub(super) fn has_changes(&self) -> bool {
        let mut changes = Vec::new();
        lock_ignoring_poison(&self.keys).values().any(|usage| {
            usage.collect_changes(&mut changes);
            !changes.is_empty()
        })
    }

    /// Keeps the counts that a report carries until the store answers it.
    pub(super) fn note_in_flight(&self, counts: &[UsageCount]) {
        *lock_ignoring_poison(&self.in_flight) = counts.to_vec();
    }

    /// Notes that the store has acknowledged the report that carried the counts.
    pub(super) fn confirm_in_flight(&self) {
        let counts = std::mem::take(&mut *lock_ignoring_poison(&self.in_flight));
        let keys = lock_ignoring_poison(&self.keys);
        for count in &counts {
            if let Some(usage) = keys.get(&count.key_id) {
                usage.confirm_count(count);
            }
        }
    }

    /// Makes the next reports carry all counts that this node still has, because the store may have
    /// lost them.
    pub(super) fn mark_unreported(&self) {
        for usage in lock_ignoring_poison(&self.keys).values() {
            usage.lock_past().reported.clear();
        }
    }
}

#[cfg(test)]
mod tests;
