//! The cache of learned DNS facts, and the queue of names to resolve. Both are bounded, and no
//! request waits for either.
//!
//! Owns which names are evicted, and when a name is resolved again. A look-up costs one probe of a
//! concurrent map. If another thread holds the lock of the queue, a look-up doesn't wait for it.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use tokio::sync::Notify;

use super::fact::apply_fact;
use super::finding::DnsFinding;
use super::finding::OUTCOMES;
use crate::model::domain::Domain;
use crate::store::DnsFactRow;
use crate::table::TableAnswer;

/// The largest size of the cache, in bytes.
const MAX_CACHE_BYTES: usize = 32 << 20;
/// The estimated size of an entry in addition to the texts of its name and host, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 200;
/// The most names that may wait for resolution.
const MAX_QUEUED_NAMES: usize = 10_000;
/// riskgate resolves a name again this long before its fact expires, so that a flag does not lapse
/// meanwhile.
const REFRESH_AHEAD_SECONDS: i64 = 60;
/// How long riskgate waits until it resolves a name again, by the number of failures in a row.
const RETRY_DELAYS_SECONDS: [i64; 4] = [60, 300, 1_800, 7_200];

/// The cache of learned DNS facts, and the queue of names to resolve.
#[derive(Default)]
pub struct DnsFactCache {
    is_enabled: AtomicBool,
    entries: DashMap<Arc<str>, CacheEntry>,
    /// The estimated size of all entries, in bytes.
    bytes: AtomicUsize,
    /// The cached names, roughly in the order of their insertion. Names at the front are evicted
    /// first, unless they were looked up since.
    eviction_order: Mutex<VecDeque<Arc<str>>>,
    pending: Mutex<NamesToResolve>,
    name_queued: Notify,
    /// The number of names that were not queued because the queue was full.
    dropped_names: AtomicU64,
    /// The number of findings by outcome, in the order of [`OUTCOMES`].
    outcome_counts: [AtomicU64; OUTCOMES.len()],
    /// When a resolver last answered, in seconds since 1970; 0 for never.
    last_answered_at: AtomicI64,
}

struct CacheEntry {
    /// The fact, as in a list of kind `mx`; `None` if no resolver has answered yet.
    mx: Option<Box<str>>,
    /// When the fact expires, in seconds since 1970.
    expires_at: i64,
    /// When riskgate resolves the name again, in seconds since 1970.
    refresh_at: i64,
    /// The number of failures in a row.
    failures: u8,
    /// Whether the entry was looked up since it was inserted or last spared from eviction.
    was_used: AtomicBool,
}

/// The names that wait in the queue or are being resolved.
#[derive(Default)]
struct NamesToResolve {
    /// The names of the queue, and the names that are being resolved.
    queued_or_in_flight: HashSet<Arc<str>>,
    queue: VecDeque<Arc<str>>,
}

impl DnsFactCache {
    /// Applies the learned fact about a domain to the table's answer. If there is no fact, or the
    /// fact is due for a refresh, the name is queued. `now` is in seconds since 1970.
    pub fn apply_dns_fact<'t>(
        &self,
        answer: TableAnswer<'t>,
        domain: &Domain,
        now: i64,
    ) -> TableAnswer<'t> {
        if !self.is_enabled() || !answer.is_undecided_by_lists() {
            return answer;
        }
        let name = domain.as_str();
        let (found, is_due) = match self.entries.get(name) {
            None => (answer, true),
            Some(entry) => {
                if !entry.was_used.load(Ordering::Relaxed) {
                    entry.was_used.store(true, Ordering::Relaxed);
                }
                let mx = entry.mx.as_ref();
                let applied = mx.and_then(|mx| apply_fact(answer, mx, entry.expires_at, now));
                (applied.unwrap_or(answer), now >= entry.refresh_at)
            }
        };
        if is_due {
            self.try_enqueue(name);
        }
        found
    }

    /// Whether the cache applies facts and queues names.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Switches the cache on or off. Switching it off clears it.
    pub fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
        if !is_enabled {
            let mut order = self.lock_eviction_order();
            self.entries.clear();
            self.entries.shrink_to_fit();
            *order = VecDeque::new();
            self.bytes.store(0, Ordering::Relaxed);
            *self.lock_pending() = NamesToResolve::default();
        }
    }

    fn try_enqueue(&self, name: &str) {
        // The lock is held only briefly. If it is taken, the next look-up of the name queues it.
        let Ok(mut pending) = self.pending.try_lock() else { return };
        if pending.queued_or_in_flight.contains(name) {
            return;
        }
        if pending.queue.len() >= MAX_QUEUED_NAMES {
            self.dropped_names.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let name: Arc<str> = name.into();
        pending.queued_or_in_flight.insert(Arc::clone(&name));
        pending.queue.push_back(name);
        drop(pending);
        self.name_queued.notify_one();
    }

    /// Waits for the next queued name.
    pub async fn wait_for_queued_name(&self) -> Arc<str> {
        loop {
            if let Some(name) = self.lock_pending().queue.pop_front() {
                return name;
            }
            self.name_queued.notified().await;
        }
    }

    /// Allows the names that are being resolved to be queued again, because their queries were
    /// cancelled.
    pub fn forget_queries_in_flight(&self) {
        let mut pending = self.lock_pending();
        pending.queued_or_in_flight = pending.queue.iter().cloned().collect();
    }

    /// Records the finding about a name. Returns the fact that was learned, if any. If no resolver
    /// answered reliably, the previous fact is kept and the name is resolved again later.
    pub fn record_finding(
        &self,
        name: &Arc<str>,
        finding: DnsFinding,
        now: i64,
    ) -> Option<DnsFactRow> {
        let index =
            OUTCOMES.iter().position(|outcome| *outcome == finding.outcome()).unwrap_or_default();
        self.outcome_counts[index].fetch_add(1, Ordering::Relaxed);
        let learned = finding.into_fact().map(|(mx, ttl_seconds)| {
            let expires_at = now.saturating_add(ttl_seconds);
            DnsFactRow { name: name.to_string(), mx, until: expires_at }
        });
        match &learned {
            Some(learned) => {
                self.last_answered_at.store(now, Ordering::Relaxed);
                self.insert_fact(learned);
            }
            None => self.schedule_retry(name, now),
        }
        self.lock_pending().queued_or_in_flight.remove(name);
        learned
    }

    /// Inserts a fact that this node or another node learned, unless the cache is disabled.
    pub fn insert_fact(&self, DnsFactRow { name, mx, until: expires_at }: &DnsFactRow) {
        if self.is_enabled() {
            let (mx, was_used) = (Some(mx.as_str().into()), AtomicBool::new(false));
            let (expires_at, refresh_at) =
                (*expires_at, expires_at.saturating_sub(REFRESH_AHEAD_SECONDS));
            let entry = CacheEntry { mx, expires_at, refresh_at, failures: 0, was_used };
            self.insert_entry(&name.as_str().into(), entry);
        }
    }

    /// Makes a name due again after a delay, which grows with each failure in a row.
    fn schedule_retry(&self, name: &Arc<str>, now: i64) {
        let retry_delay = |failures: u8| {
            RETRY_DELAYS_SECONDS[usize::from(failures).min(RETRY_DELAYS_SECONDS.len() - 1)]
        };
        if let Some(mut entry) = self.entries.get_mut(name) {
            entry.refresh_at = now.saturating_add(retry_delay(entry.failures));
            entry.failures = entry.failures.saturating_add(1);
            return;
        }
        let (refresh_at, was_used) = (now.saturating_add(retry_delay(0)), AtomicBool::new(false));
        self.insert_entry(
            name,
            CacheEntry { mx: None, expires_at: 0, refresh_at, failures: 1, was_used },
        );
    }

    /// Inserts or replaces an entry. If the cache is then too large, evicts the oldest entries. An
    /// entry that was looked up since its insertion, or since it was last spared, is spared.
    fn insert_entry(&self, name: &Arc<str>, entry: CacheEntry) {
        let mut order = self.lock_eviction_order();
        let mut bytes = self.bytes.load(Ordering::Relaxed) + entry.size_bytes(name);
        match self.entries.insert(Arc::clone(name), entry) {
            Some(before) => bytes -= before.size_bytes(name),
            None => order.push_back(Arc::clone(name)),
        }
        while bytes > MAX_CACHE_BYTES
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

    /// The number of cached names, including names that no resolver answered about.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// The number of names in the queue.
    pub fn queue_len(&self) -> usize {
        self.lock_pending().queue.len()
    }

    /// The number of names that were not queued because the queue was full.
    pub fn dropped_count(&self) -> u64 {
        self.dropped_names.load(Ordering::Relaxed)
    }

    /// The outcomes, each with its number of findings since the start.
    pub fn findings_by_outcome(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.outcome_counts.iter().map(|count| count.load(Ordering::Relaxed));
        OUTCOMES.into_iter().zip(counts)
    }

    /// When a resolver last answered, in seconds since 1970.
    pub fn last_answered_at(&self) -> Option<i64> {
        Some(self.last_answered_at.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }

    fn lock_eviction_order(&self) -> MutexGuard<'_, VecDeque<Arc<str>>> {
        self.eviction_order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_pending(&self) -> MutexGuard<'_, NamesToResolve> {
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
