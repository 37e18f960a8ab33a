//! What was learned, and the queue of names to ask about: both bounded. No request waits for either.
//!
//! Owns which names make room, and when a name is asked about again. A look-up costs one probe of a
//! concurrent map; queueing a name costs a lock that is only tried.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use tokio::sync::Notify;

use super::fact::apply_fact;
use super::finding::DnsFinding;
use super::finding::OUTCOMES;
use crate::model::domain::Domain;
use crate::store::LearnedRow;
use crate::table::Lookup;

/// What is known may take so many bytes.
const MAX_BYTES: usize = 32 << 20;
/// What a name costs beside its letters and those of its host.
const ENTRY_OVERHEAD_BYTES: usize = 200;
/// Names waiting for a DNS resolution.
const MAX_QUEUED: usize = 10_000;
/// A name is asked anew so many seconds before its fact ends, so that a flag is not interrupted.
const REFRESH_AHEAD_SECONDS: i64 = 60;
/// How long riskgate waits until it asks about a name again, by how often no resolver answered.
const RETRY_DELAYS_SECONDS: [i64; 4] = [60, 300, 1_800, 7_200];

/// What was learned, and the queue of names to ask about.
#[derive(Default)]
pub struct LearnedCache {
    is_enabled: AtomicBool,
    entries: DashMap<Arc<str>, CacheEntry>,
    bytes: AtomicUsize,
    /// The names that are known, roughly in the order in which they came; those at the front make
    /// room, but for such as were looked up since.
    eviction_order: Mutex<VecDeque<Arc<str>>>,
    pending: Mutex<PendingNames>,
    name_queued: Notify,
    dropped: AtomicU64,
    /// How many names led to each of [`OUTCOMES`].
    outcome_counts: [AtomicU64; OUTCOMES.len()],
    answered_at: AtomicI64,
}

struct CacheEntry {
    /// As in a list of kind `mx`; none where nothing came.
    mx: Option<Box<str>>,
    /// Until when that holds, in seconds since 1970.
    until: i64,
    /// When it is asked anew.
    refresh_at: i64,
    /// How often nothing came, one after the other.
    failures: u8,
    was_used: AtomicBool,
}

/// Names to be asked: those in the queue, and those that are being asked.
#[derive(Default)]
struct PendingNames {
    names: HashSet<Arc<str>>,
    queue: VecDeque<Arc<str>>,
}

impl LearnedCache {
    /// What a table says of a domain, with what the DNS is known to say of it. A name of which
    /// nothing is known is queued. `now` is in seconds since 1970.
    pub fn apply_learned<'t>(&self, found: Lookup<'t>, domain: &Domain, now: i64) -> Lookup<'t> {
        if !self.is_on() || !found.is_undecided_by_lists() {
            return found;
        }
        let name = domain.as_str();
        let (found, is_due) = match self.entries.get(name) {
            None => (found, true),
            Some(entry) => {
                if !entry.was_used.load(Ordering::Relaxed) {
                    entry.was_used.store(true, Ordering::Relaxed);
                }
                let mx = entry.mx.as_ref();
                let applied = mx.and_then(|mx| apply_fact(found, mx, entry.until, now));
                (applied.unwrap_or(found), now >= entry.refresh_at)
            }
        };
        if is_due {
            self.enqueue(name);
        }
        found
    }

    /// Whether names are looked up and queued.
    pub fn is_on(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Switches it on or off; off, it forgets everything.
    pub fn set_enabled(&self, is_on: bool) {
        self.is_enabled.store(is_on, Ordering::Relaxed);
        if !is_on {
            let mut order = self.lock_eviction_order();
            self.entries.clear();
            self.entries.shrink_to_fit();
            *order = VecDeque::new();
            self.bytes.store(0, Ordering::Relaxed);
            *self.lock_pending() = PendingNames::default();
        }
    }

    fn enqueue(&self, name: &str) {
        // Whoever has it is done in no time; the next look-up asks again.
        let Ok(mut pending) = self.pending.try_lock() else { return };
        if pending.names.contains(name) {
            return;
        }
        if pending.queue.len() >= MAX_QUEUED {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let name: Arc<str> = name.into();
        pending.names.insert(Arc::clone(&name));
        pending.queue.push_back(name);
        drop(pending);
        self.name_queued.notify_one();
    }

    /// The next name to ask; waits for one.
    pub async fn wait_for_queued_name(&self) -> Arc<str> {
        loop {
            if let Some(name) = self.lock_pending().queue.pop_front() {
                return name;
            }
            self.name_queued.notified().await;
        }
    }

    /// What was being asked is asked by nobody any more.
    pub fn forget_queries_in_flight(&self) {
        let mut pending = self.lock_pending();
        pending.names = pending.queue.iter().cloned().collect();
    }

    /// Keeps what came of a question; what was learned, if anything was. What is known of a name
    /// stays where nothing came.
    pub fn record_finding(
        &self,
        name: &Arc<str>,
        finding: DnsFinding,
        now: i64,
    ) -> Option<LearnedRow> {
        let index = OUTCOMES.iter().position(|word| *word == finding.outcome()).unwrap_or_default();
        self.outcome_counts[index].fetch_add(1, Ordering::Relaxed);
        let learned = finding.into_fact().map(|(mx, holds_for)| {
            let expires_at = now.saturating_add(holds_for);
            LearnedRow { name: name.to_string(), mx, until: expires_at }
        });
        match &learned {
            Some(learned) => {
                self.answered_at.store(now, Ordering::Relaxed);
                self.insert_fact(learned);
            }
            None => self.schedule_retry(name, now),
        }
        self.lock_pending().names.remove(name);
        learned
    }

    /// Takes over what was learned here or by another node.
    pub fn insert_fact(&self, LearnedRow { name, mx, until: expires_at }: &LearnedRow) {
        if self.is_on() {
            let (mx, was_used) = (Some(mx.as_str().into()), AtomicBool::new(false));
            let ask_at = expires_at.saturating_sub(REFRESH_AHEAD_SECONDS);
            let entry =
                CacheEntry { mx, until: *expires_at, refresh_at: ask_at, failures: 0, was_used };
            self.insert_entry(&name.as_str().into(), entry);
        }
    }

    /// Has a name asked about again later.
    fn schedule_retry(&self, name: &Arc<str>, now: i64) {
        let retry_delay = |failures: u8| {
            RETRY_DELAYS_SECONDS[usize::from(failures).min(RETRY_DELAYS_SECONDS.len() - 1)]
        };
        if let Some(mut entry) = self.entries.get_mut(name) {
            entry.refresh_at = now.saturating_add(retry_delay(entry.failures));
            entry.failures = entry.failures.saturating_add(1);
            return;
        }
        let (ask_at, was_used) = (now.saturating_add(retry_delay(0)), AtomicBool::new(false));
        self.insert_entry(
            name,
            CacheEntry { mx: None, until: 0, refresh_at: ask_at, failures: 1, was_used },
        );
    }

    fn insert_entry(&self, name: &Arc<str>, entry: CacheEntry) {
        let mut order = self.lock_eviction_order();
        let mut bytes = self.bytes.load(Ordering::Relaxed) + entry.size_bytes(name);
        match self.entries.insert(Arc::clone(name), entry) {
            Some(before) => bytes -= before.size_bytes(name),
            None => order.push_back(Arc::clone(name)),
        }
        while bytes > MAX_BYTES
            && let Some(first) = order.pop_front()
        {
            let was_used = |entry: &CacheEntry| entry.was_used.swap(false, Ordering::Relaxed);
            if self.entries.get(&first).is_some_and(|entry| was_used(&entry)) {
                order.push_back(first);
            } else if let Some((name, entry)) = self.entries.remove(&first) {
                bytes -= entry.size_bytes(&name);
            }
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// How many names are known; those included of which nothing came.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// How many names wait to be asked.
    pub fn queue_len(&self) -> usize {
        self.lock_pending().queue.len()
    }

    /// How many names were not taken, since too many waited.
    pub fn dropped_count(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many names led to each outcome.
    pub fn asked(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let is_valid = self.outcome_counts.iter().map(|count| count.load(Ordering::Relaxed));
        OUTCOMES.into_iter().zip(is_valid)
    }

    /// When a resolver answered last, in seconds since 1970.
    pub fn answered_at(&self) -> Option<i64> {
        Some(self.answered_at.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }

    fn lock_eviction_order(&self) -> MutexGuard<'_, VecDeque<Arc<str>>> {
        self.eviction_order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_pending(&self) -> MutexGuard<'_, PendingNames> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheEntry {
    fn size_bytes(&self, name: &str) -> usize {
        name.len() + self.mx.as_ref().map_or(0, |mx| mx.len()) + ENTRY_OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests;
