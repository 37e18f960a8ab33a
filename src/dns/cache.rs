//! The cache of learned DNS facts, the queue of names to resolve, and the facts that no store has
//! yet. All are bounded, and no request waits for any of them.
//!
//! Owns which names are evicted, and when a name is resolved again. A look-up doesn't wait for the
//! lock of the queue.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dashmap::DashMap;
use tokio::sync::Notify;

use super::fact::apply_fact_if_usable;
use super::finding::DnsFinding;
use super::finding::OUTCOME_LABELS;
use super::shared_addresses::SharedAddresses;
use crate::model::domain::Domain;
use crate::store::DnsFactRow;
use crate::support::lock::lock;
use crate::table::{Table, TableAnswer};

/// The largest estimated size of the cache, in bytes.
const MAX_CACHE_BYTES: usize = 32 << 20;
/// The estimated size of an entry in addition to the texts of its name and host, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 200;
/// The most names whose facts wait to be written. While the store is down, facts of further names
/// are not shared.
const MAX_UNSAVED_FACTS: usize = 10_000;
/// The most names that may wait for resolution.
const MAX_QUEUED_NAMES: usize = 10_000;
/// From this time before a fact's expiry on, a look-up queues the name again. So if a flagged name
/// is looked up often, its next fact arrives before this one expires.
const REFRESH_AHEAD_SECONDS: i64 = 60;
/// How long riskgate does not resolve a name again after a failure: the n-th delay after the n-th
/// failure in a row, and the last one from then on.
const RETRY_DELAYS_SECONDS: [i64; 4] = [60, 300, 1_800, 7_200];

/// The cache of learned DNS facts, the queue of names to resolve, and the facts to write.
#[derive(Default)]
pub struct DnsFactCache {
    is_enabled: AtomicBool,
    entries: DashMap<Arc<str>, CacheEntry>,
    /// The estimated size of all entries, in bytes.
    estimated_bytes: AtomicUsize,
    /// The number of entries with a fact.
    known_name_count: AtomicUsize,
    /// The cached names, roughly in the order of their insertion. Names at the front are evicted
    /// first, unless they were looked up since.
    eviction_order: Mutex<VecDeque<Arc<str>>>,
    names_to_resolve: Mutex<NamesToResolve>,
    /// The latest fact of each name that this node learned and that the store does not have yet.
    unsaved_facts: Mutex<BTreeMap<String, DnsFactRow>>,
    shared_addresses: SharedAddresses,
    name_queued: Notify,
    /// The number of names that were not queued because the queue was full.
    dropped_name_count: AtomicU64,
    /// The number of findings by outcome, in the order of [`OUTCOME_LABELS`].
    outcome_counts: [AtomicU64; OUTCOME_LABELS.len()],
    /// When riskgate last recorded a reliable answer of a resolver, in seconds since 1970; 0 for
    /// never.
    last_answered_at: AtomicI64,
}

struct CacheEntry {
    /// The fact, as in a list of kind `mx`, or `address`; `None` if no resolver has answered
    /// reliably yet.
    mx: Option<Box<str>>,
    /// Addresses of the MX host; empty if they are not known.
    addresses: Box<[IpAddr]>,
    /// When the fact expires, in seconds since 1970.
    expires_at: i64,
    /// When riskgate resolves the name again, in seconds since 1970.
    refresh_at: i64,
    /// The number of times in a row that no resolver answered reliably.
    consecutive_failures: u8,
    /// Whether the entry was looked up since it was inserted or last spared from eviction.
    was_looked_up: AtomicBool,
}

/// The names that wait in the queue or are being resolved.
#[derive(Default)]
struct NamesToResolve {
    /// All names of the queue, and all names that are being resolved. None of these is queued
    /// again.
    queued_or_in_flight: HashSet<Arc<str>>,
    queue: VecDeque<Arc<str>>,
}

impl DnsFactCache {
    /// Applies the learned fact about a domain to the table's answer. Queues the name if the cache
    /// has no entry for it, or if the entry is due for a refresh. Changes and queues nothing if DNS
    /// facts may not change the answer ([`TableAnswer::is_undecided_by_lists`]), or if the cache is
    /// disabled. `now` is in seconds since 1970.
    pub fn apply_fact_and_queue_if_due<'t>(
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
                if !entry.was_looked_up.load(Ordering::Relaxed) {
                    entry.was_looked_up.store(true, Ordering::Relaxed);
                }
                let version = answer.table_version();
                let may_be_used_by_real_names = |address| {
                    self.shared_addresses.may_be_used_by_real_names(address, version, now)
                };
                let applied = entry.mx.as_ref().and_then(|mx| {
                    let fact = (&**mx, &*entry.addresses);
                    apply_fact_if_usable(
                        answer,
                        fact,
                        entry.expires_at,
                        now,
                        may_be_used_by_real_names,
                    )
                });
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

    /// Switches the cache on or off. Switching the cache off clears it, its queue and the facts to
    /// write.
    pub fn enable_or_clear(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
        if !is_enabled {
            let mut order = lock(&self.eviction_order);
            self.entries.clear();
            self.entries.shrink_to_fit();
            *order = VecDeque::new();
            self.estimated_bytes.store(0, Ordering::Relaxed);
            self.known_name_count.store(0, Ordering::Relaxed);
            *lock(&self.names_to_resolve) = NamesToResolve::default();
            lock(&self.unsaved_facts).clear();
        }
    }

    fn try_enqueue(&self, name: &str) {
        // If another thread holds the lock, the next look-up of the name queues the name.
        let Ok(mut pending) = self.names_to_resolve.try_lock() else { return };
        if pending.queued_or_in_flight.contains(name) {
            return;
        }
        if pending.queue.len() >= MAX_QUEUED_NAMES {
            self.dropped_name_count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let name: Arc<str> = name.into();
        pending.queued_or_in_flight.insert(Arc::clone(&name));
        pending.queue.push_back(name);
        drop(pending);
        self.name_queued.notify_one();
    }

    /// Waits for the next queued name, and takes it from the queue. The name is not queued again
    /// until its finding is recorded, or its query is forgotten.
    pub async fn wait_and_dequeue_name(&self) -> Arc<str> {
        loop {
            if let Some(name) = lock(&self.names_to_resolve).queue.pop_front() {
                return name;
            }
            self.name_queued.notified().await;
        }
    }

    /// Allows the names that are being resolved to be queued again, because their queries were
    /// cancelled.
    pub fn forget_queries_in_flight(&self) {
        let mut pending = lock(&self.names_to_resolve);
        pending.queued_or_in_flight = pending.queue.iter().cloned().collect();
    }

    /// Records the finding about a name. A learned fact waits to be written, unless too many facts
    /// wait already. If no resolver answered reliably, the cache keeps the previous fact, and a
    /// look-up after a delay queues the name again. `table` tells whether the fact is about a real
    /// name.
    pub fn record_finding(&self, name: &Arc<str>, finding: DnsFinding, table: &Table, now: i64) {
        let index = OUTCOME_LABELS
            .iter()
            .position(|outcome| *outcome == finding.outcome_label())
            .unwrap_or_default();
        self.outcome_counts[index].fetch_add(1, Ordering::Relaxed);
        match finding.into_fact(name, now) {
            Some(learned) => {
                self.last_answered_at.store(now, Ordering::Relaxed);
                self.insert_fact(&learned, table, now);
                let mut unsaved = lock(&self.unsaved_facts);
                let has_place =
                    unsaved.len() < MAX_UNSAVED_FACTS || unsaved.contains_key(&learned.name);
                if self.is_enabled() && has_place {
                    unsaved.insert(learned.name.clone(), learned);
                }
            }
            None => self.schedule_retry(name, now),
        }
        lock(&self.names_to_resolve).queued_or_in_flight.remove(name);
    }

    /// Takes the facts that wait to be written. Drops those that have expired at `now`, because
    /// another node may have written a newer fact of the name meanwhile.
    pub(super) fn take_unsaved_facts(&self, now: i64) -> Vec<DnsFactRow> {
        let unsaved = std::mem::take(&mut *lock(&self.unsaved_facts));
        unsaved.into_values().filter(|fact| now < fact.expires_at).collect()
    }

    /// Puts facts back that could not be written. A fact of the same name that was learned since
    /// stays.
    pub(super) fn put_back_unsaved_facts(&self, facts: Vec<DnsFactRow>) {
        let mut unsaved = lock(&self.unsaved_facts);
        if self.is_enabled() {
            let free = MAX_UNSAVED_FACTS.saturating_sub(unsaved.len());
            for fact in facts.into_iter().take(free) {
                unsaved.entry(fact.name.clone()).or_insert(fact);
            }
        }
    }

    /// Inserts a fact that this node or another node learned, unless the cache is disabled. `table`
    /// tells whether the fact is about a real name.
    pub fn insert_fact(&self, fact: &DnsFactRow, table: &Table, now: i64) {
        if self.is_enabled() {
            let entry = CacheEntry {
                mx: Some(fact.mx.as_str().into()),
                addresses: fact.addresses.as_slice().into(),
                expires_at: fact.expires_at,
                refresh_at: fact.expires_at.saturating_sub(REFRESH_AHEAD_SECONDS),
                consecutive_failures: 0,
                was_looked_up: AtomicBool::new(false),
            };
            self.shared_addresses.record_fact(fact, table, now);
            self.insert_entry_and_evict(&fact.name.as_str().into(), entry);
        }
    }

    /// If the table has changed, finds out again which addresses of its list real names use too.
    pub fn update_shared_addresses(&self, table: &Table, now: i64) {
        if self.shared_addresses.is_of_table(table.version()) {
            return;
        }
        let with_addresses = self.entries.iter().filter(|entry| !entry.addresses.is_empty());
        let facts = with_addresses.map(|entry| DnsFactRow {
            name: entry.key().to_string(),
            mx: entry.mx.as_deref().unwrap_or_default().to_owned(),
            addresses: entry.addresses.to_vec(),
            expires_at: entry.expires_at,
        });
        self.shared_addresses.adopt_table(table, facts, now);
    }

    /// Makes a name due again after a delay, which grows with each failure in a row.
    fn schedule_retry(&self, name: &Arc<str>, now: i64) {
        if !self.is_enabled() {
            return;
        }
        let retry_delay = |failures: u8| {
            RETRY_DELAYS_SECONDS[usize::from(failures).min(RETRY_DELAYS_SECONDS.len() - 1)]
        };
        if let Some(mut entry) = self.entries.get_mut(name) {
            entry.refresh_at = now.saturating_add(retry_delay(entry.consecutive_failures));
            entry.consecutive_failures = entry.consecutive_failures.saturating_add(1);
            return;
        }
        self.insert_entry_and_evict(
            name,
            CacheEntry {
                mx: None,
                addresses: Box::default(),
                expires_at: 0,
                refresh_at: now.saturating_add(retry_delay(0)),
                consecutive_failures: 1,
                was_looked_up: AtomicBool::new(false),
            },
        );
    }

    /// Inserts or replaces an entry. If the cache is then too large, evicts the oldest entries. An
    /// entry that was looked up since its insertion, or since it was last spared, is spared.
    fn insert_entry_and_evict(&self, name: &Arc<str>, entry: CacheEntry) {
        let mut order = lock(&self.eviction_order);
        let mut bytes = self.estimated_bytes.load(Ordering::Relaxed) + entry.estimated_bytes(name);
        let is_known = usize::from(entry.mx.is_some());
        let mut known = self.known_name_count.load(Ordering::Relaxed) + is_known;
        match self.entries.insert(Arc::clone(name), entry) {
            Some(before) => {
                bytes -= before.estimated_bytes(name);
                known -= usize::from(before.mx.is_some());
            }
            None => order.push_back(Arc::clone(name)),
        }
        while bytes > MAX_CACHE_BYTES
            && let Some(first) = order.pop_front()
        {
            let unmark_looked_up =
                |entry: &CacheEntry| entry.was_looked_up.swap(false, Ordering::Relaxed);
            if self.entries.get(&first).is_some_and(|entry| unmark_looked_up(&entry)) {
                order.push_back(first);
            } else if let Some((name, entry)) = self.entries.remove(&first) {
                bytes -= entry.estimated_bytes(&name);
                known -= usize::from(entry.mx.is_some());
            }
        }
        self.estimated_bytes.store(bytes, Ordering::Relaxed);
        self.known_name_count.store(known, Ordering::Relaxed);
    }

    /// The number of names with a learned fact.
    pub fn known_name_count(&self) -> usize {
        self.known_name_count.load(Ordering::Relaxed)
    }

    /// The number of names in the queue.
    pub fn queued_name_count(&self) -> usize {
        lock(&self.names_to_resolve).queue.len()
    }

    /// The number of names that were not queued because the queue was full.
    pub fn dropped_name_count(&self) -> u64 {
        self.dropped_name_count.load(Ordering::Relaxed)
    }

    /// The outcomes, each with its number of findings since the start.
    pub fn finding_counts_by_outcome(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.outcome_counts.iter().map(|count| count.load(Ordering::Relaxed));
        OUTCOME_LABELS.into_iter().zip(counts)
    }

    /// When riskgate last recorded a reliable answer of a resolver, in seconds since 1970.
    pub fn last_answered_at(&self) -> Option<i64> {
        Some(self.last_answered_at.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }
}

impl CacheEntry {
    fn estimated_bytes(&self, name: &str) -> usize {
        name.len()
            + self.mx.as_ref().map_or(0, |mx| mx.len())
            + size_of_val(&*self.addresses)
            + ENTRY_OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests;
