//! The most frequently flagged domains that this deployment has answered.
//!
//! This module owns the decayed counts, the hashes of today's look-ups, and the ranked list. In one
//! day, an account adds at most one to the count of a row. The space-saving algorithm (Metwally,
//! Agrawal, El Abbadi 2005) keeps at most [`MAX_COUNTED_ROWS`] rows in memory. It never makes a
//! count too low, and makes a count too high by at most the smallest count in memory. Look-ups that
//! are dropped do not count. A request brings its own time, so that counting a look-up reads no
//! clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dashmap::DashSet;
use serde_json::{Value, json};
use siphasher::sip::SipHasher13;

use crate::model::month::SECONDS_PER_DAY;
use crate::model::verdict::{Reason, Score};
use crate::store::{MAX_TOP_ROW_ACCOUNTS, Store, StoreError, TopCredit, TopRow};
use crate::support::lock::lock;
use crate::support::snapshot::SnapshotCell;

/// The most rows that are counted at the same time.
pub const MAX_COUNTED_ROWS: usize = 10_000;
/// The most dedup hashes in memory. A dedup hash is made of the account, the row and the day of a
/// counted look-up.
pub const MAX_DEDUP_HASHES: usize = 1_000_000;
/// What the seed list adds to the count of its first name. It adds an n-th of this to the n-th
/// name.
pub const FIRST_SEED_WEIGHT: f64 = 120.0;

const MAX_QUEUED_LOOKUPS: usize = 8_192;

/// The options of the list.
#[derive(Clone, Copy, Debug)]
pub struct TopDomainsOptions {
    /// The most entries in the list.
    pub limit: usize,
    /// How many different accounts must have looked a row up before its count is used.
    pub min_accounts: usize,
    /// The seconds after which a count has decayed to one half.
    pub half_life_seconds: f64,
}

/// Returns the reason and the score of a name if the current table flags the name.
pub type FlaggedVerdictFn = Box<dyn Fn(&str) -> Option<(Reason, Score)> + Send>;
/// Returns the believed time in Unix seconds. Counts decay by this time.
pub type ClockFn = Box<dyn Fn() -> i64 + Send>;
/// Returns the seed list of the current table, in its order.
pub type SeedListFn = Box<dyn Fn() -> Vec<String> + Send>;

/// One name of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct TopEntry {
    domain: String,
    score: Score,
    reason: Reason,
    /// The decayed count; `None` for a name that only the seed list has put into the list.
    count: Option<f64>,
}

impl TopEntry {
    /// Renders the members that clients get.
    fn to_client_json(&self) -> String {
        let TopEntry { domain, score, reason, .. } = self;
        let (domain, score) = (json!(domain), score.value());
        format!(r#"{{"domain":{domain},"risk_score":{score},"reason":"{reason}"}}"#)
    }

    /// Renders the name for an operator, with its count to one decimal place.
    pub fn to_json_with_count(&self) -> Value {
        json!({
            "domain": self.domain, "risk_score": self.score.value(), "reason": self.reason.as_str(),
            "count": self.count.map(|count| (count * 10.0).round() / 10.0),
        })
    }
}

/// The list, as entries and as the body of a response.
struct PublishedList {
    entries: Vec<TopEntry>,
    /// The body of the response to a client.
    body: Bytes,
}

/// Counts flagged look-ups, and publishes the ranked list. A thread of its own counts and ranks.
pub struct TopList {
    shared: Arc<Shared>,
    seen_hashes: DashSet<u64>,
    day_of_hashes: AtomicU64,
    sender: Mutex<Option<SyncSender<FlaggedLookup>>>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// What the [`TopList`] shares with its thread.
struct Shared {
    list: SnapshotCell<PublishedList>,
    options: SnapshotCell<TopDomainsOptions>,
    is_stale: AtomicBool,
    dropped_lookups: AtomicU64,
}

impl Shared {
    /// The list is empty until the thread has ranked the counts.
    fn new(options: TopDomainsOptions) -> Shared {
        let empty = PublishedList { entries: Vec::new(), body: Bytes::new() };
        Shared {
            list: SnapshotCell::new(empty),
            options: SnapshotCell::new(options),
            is_stale: AtomicBool::new(false),
            dropped_lookups: AtomicU64::new(0),
        }
    }
}

/// A flagged look-up that waits to be counted.
struct FlaggedLookup {
    domain: String,
    account_hash: u64,
    dedup_hash: u64,
    looked_up_at: i64,
}

impl TopList {
    /// Reads the counts that are in the store, and starts the thread.
    ///
    /// # Errors
    /// If the store fails, or if the thread can't be started. A store that does not answer is no
    /// error: the thread reads the counts later.
    pub fn start(
        mut store: Store,
        options: TopDomainsOptions,
        flagged_verdict_of: FlaggedVerdictFn,
        seed_list: SeedListFn,
        clock: ClockFn,
    ) -> Result<TopList, StoreError> {
        let unix_now = clock();
        let today = unix_now.div_euclid(SECONDS_PER_DAY);
        let (rows, dedup_hashes) = match store.top_rows_and_dedup_hashes(today) {
            // If Redis does not answer yet, the thread reads the counts later.
            Err(StoreError::Unavailable { .. }) => (Vec::new(), Vec::new()),
            outcome => outcome?,
        };
        let (sender, receiver) = sync_channel(MAX_QUEUED_LOOKUPS);
        let shared = Arc::new(Shared::new(options));
        let mut worker = Worker {
            stored_domains: rows.iter().map(|row| row.domain.clone()).collect(),
            store,
            flagged_verdict_of,
            seed_list,
            clock,
            rows: rows.into_iter().map(|row| (row.domain.clone(), row)).collect(),
            shared: Arc::clone(&shared),
            unsaved_by_day: BTreeMap::new(),
            unsaved_hashes: 0,
            evicted: BTreeSet::new(),
            last_read_attempt: Instant::now(),
        };
        worker.rebuild_list(unix_now);
        let worker = std::thread::Builder::new()
            .name("top".to_owned())
            .spawn(move || worker.run(&receiver))
            .map_err(|error| StoreError::Conflict(format!("expected a thread, found {error}")))?;
        Ok(TopList {
            shared,
            seen_hashes: dedup_hashes.into_iter().collect(),
            day_of_hashes: AtomicU64::new(today.cast_unsigned()),
            sender: Mutex::new(Some(sender)),
            worker: Mutex::new(Some(worker)),
        })
    }

    /// Returns the list as the body of a response. The thread updates a changed list once a second.
    pub fn response_body(&self) -> Bytes {
        Bytes::clone(&self.shared.list.peek().body)
    }

    /// Returns the names of the list with their counts.
    pub fn entries(&self) -> Vec<TopEntry> {
        self.shared.list.peek().entries.clone()
    }

    /// Counts a flagged look-up of `account` for the row that matched. Does nothing:
    /// - if a look-up of the account for the row was counted on this day, or
    /// - if [`MAX_DEDUP_HASHES`] look-ups were counted on this day.
    ///
    /// If the queue is full, drops the look-up.
    pub fn count_lookup(&self, row: &str, account: &str, unix_now: i64) {
        let day = unix_now.div_euclid(SECONDS_PER_DAY);
        let today = day.cast_unsigned();
        // If the day is the same, a load suffices. A swap would take the cache line from other
        // cores.
        let is_new = self.day_of_hashes.load(Ordering::Relaxed) != today;
        if is_new && self.day_of_hashes.swap(today, Ordering::Relaxed) != today {
            self.seen_hashes.clear();
        }
        let dedup_hash = stable_hash(&(account, row, day));
        if self.seen_hashes.contains(&dedup_hash) {
            return;
        }
        if self.seen_hashes.len() >= MAX_DEDUP_HASHES || !self.seen_hashes.insert(dedup_hash) {
            return;
        }
        let lookup = FlaggedLookup {
            domain: row.to_owned(),
            account_hash: stable_hash(&account),
            dedup_hash,
            looked_up_at: unix_now,
        };
        let sender = lock(&self.sender);
        let sent = sender.as_ref().is_some_and(|sender| sender.try_send(lookup).is_ok());
        if !sent {
            self.seen_hashes.remove(&dedup_hash);
            self.shared.dropped_lookups.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Replaces the options.
    pub fn set_options(&self, options: TopDomainsOptions) {
        self.shared.options.publish(options);
        self.mark_stale();
    }

    /// Makes the worker rebuild the list, because the table or the options have changed.
    pub fn mark_stale(&self) {
        self.shared.is_stale.store(true, Ordering::Release);
    }

    /// Returns how many look-ups were dropped, because the queue was full, or because too many
    /// counts were unsaved.
    pub fn dropped_lookups(&self) -> u64 {
        self.shared.dropped_lookups.load(Ordering::Relaxed)
    }

    /// Lets the worker save the counts once more, and stops it. If the store fails, the unsaved
    /// counts are lost.
    pub fn close(&self) {
        drop(lock(&self.sender).take());
        if let Some(worker) = lock(&self.worker).take() {
            let _ = worker.join();
        }
    }
}

impl Drop for TopList {
    fn drop(&mut self) {
        self.close();
    }
}

fn stable_hash(value: &impl Hash) -> u64 {
    // The hash has a fixed key, because the store keeps the hashes across restarts. If two look-ups
    // have the same hash, one of them is not counted.
    let mut hasher = SipHasher13::new();
    value.hash(&mut hasher);
    hasher.finish()
}

struct Worker {
    store: Store,
    flagged_verdict_of: FlaggedVerdictFn,
    seed_list: SeedListFn,
    clock: ClockFn,
    /// The rows of the store, with the counts that this node has added since the last read.
    rows: HashMap<String, TopRow>,
    shared: Arc<Shared>,
    /// The unsaved counts by day and domain, because an outage may last longer than a day.
    unsaved_by_day: BTreeMap<i64, HashMap<String, TopCredit>>,
    unsaved_hashes: usize,
    /// The domains in `rows` whose rows are in the store.
    stored_domains: HashSet<String>,
    /// The domains of evicted rows that are still in the store.
    evicted: BTreeSet<String>,
    last_read_attempt: Instant,
}

/// How often the thread reads the counts of other nodes.
const STORE_READ_INTERVAL: Duration = Duration::from_secs(10);

impl Worker {
    fn run(mut self, receiver: &Receiver<FlaggedLookup>) {
        let second = Duration::from_secs(1);
        let mut last = Instant::now();
        let mut dirty = false;
        loop {
            let wait = second.saturating_sub(last.elapsed());
            let open = match receiver.recv_timeout(wait) {
                Ok(lookup) => {
                    self.count_queued_lookup(lookup);
                    dirty = true;
                    true
                }
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => false,
            };
            if open && last.elapsed() < second {
                continue;
            }
            last = Instant::now();
            let others =
                self.last_read_attempt.elapsed() >= STORE_READ_INTERVAL && self.reload_saved_rows();
            let saved = !dirty || self.save_counts();
            if dirty || others || self.shared.is_stale.swap(false, Ordering::AcqRel) {
                self.rebuild_list((self.clock)());
            }
            dirty = dirty && !saved;
            if !open {
                return;
            }
        }
    }

    fn count_queued_lookup(&mut self, lookup: FlaggedLookup) {
        let half_life = self.shared.options.peek().half_life_seconds;
        let FlaggedLookup { domain, account_hash, dedup_hash, looked_up_at: at } = lookup;
        if self.unsaved_hashes >= MAX_DEDUP_HASHES {
            self.shared.dropped_lookups.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.unsaved_hashes += 1;
        let mut base = 0.0;
        if !self.rows.contains_key(&domain) && self.rows.len() >= MAX_COUNTED_ROWS {
            base = self.evict_smallest_row(at, half_life);
        }
        let day_credits = self.unsaved_by_day.entry(at.div_euclid(SECONDS_PER_DAY)).or_default();
        let credit = day_credits.entry(domain.clone()).or_insert(TopCredit {
            domain: domain.clone(),
            initial_count: base,
            at,
            dedup_hashes: Vec::new(),
        });
        credit.at = credit.at.max(at);
        credit.dedup_hashes.push((dedup_hash, account_hash));
        // The list shows the count even before the store has it.
        let row = self.rows.remove(&domain);
        let new_credit =
            TopCredit { initial_count: base, at, dedup_hashes: Vec::new(), domain: domain.clone() };
        self.rows.insert(domain, TopRow::add_lookups(row, &new_credit, &[account_hash], half_life));
    }

    /// Evicts the row with the smallest count. Returns its count, with which the new row starts.
    fn evict_smallest_row(&mut self, at: i64, half_life: f64) -> f64 {
        let smallest = self
            .rows
            .iter()
            .map(|(domain, row)| (row.count_at(at, half_life), domain))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(count, domain)| (count, domain.clone()));
        let Some((count, domain)) = smallest else { return 0.0 };
        self.rows.remove(&domain);
        for credits in self.unsaved_by_day.values_mut() {
            let removed = credits.remove(&domain).map_or(0, |credit| credit.dedup_hashes.len());
            self.unsaved_hashes -= removed;
        }
        if self.stored_domains.remove(&domain) {
            self.evicted.insert(domain);
        }
        count
    }

    fn rebuild_list(&mut self, now: i64) {
        let options = **self.shared.options.peek();
        let mut counts: HashMap<&str, f64> = HashMap::new();
        for (domain, row) in &self.rows {
            if row.account_hashes.len() >= options.min_accounts.min(MAX_TOP_ROW_ACCOUNTS) {
                counts.insert(domain, row.count_at(now, options.half_life_seconds));
            }
        }
        let mut weights = counts.clone();
        let seed = (self.seed_list)();
        for (seed_rank, domain) in seed.iter().enumerate() {
            *weights.entry(domain).or_default() += FIRST_SEED_WEIGHT / (seed_rank + 1) as f64;
        }
        let seed_ranks: HashMap<&str, usize> = seed
            .iter()
            .enumerate()
            .map(|(seed_rank, domain)| (domain.as_str(), seed_rank))
            .collect();
        let seed_rank = |domain: &str| seed_ranks.get(domain).copied().unwrap_or(usize::MAX);
        let mut ranked: Vec<(&str, f64)> = weights.into_iter().collect();
        ranked.sort_unstable_by(|a, b| {
            let by_count = b.1.total_cmp(&a.1);
            by_count.then_with(|| seed_rank(a.0).cmp(&seed_rank(b.0))).then_with(|| a.0.cmp(b.0))
        });
        let entries: Vec<TopEntry> = ranked
            .into_iter()
            .filter_map(|(domain, _)| {
                let (reason, score) = (self.flagged_verdict_of)(domain)?;
                let count = counts.get(domain).copied();
                Some(TopEntry { domain: domain.to_owned(), score, reason, count })
            })
            .take(options.limit)
            .collect();
        let rendered: Vec<String> = entries.iter().map(TopEntry::to_client_json).collect();
        let body = format!(r#"{{"domains":[{}],"count":{}}}"#, rendered.join(","), entries.len());
        self.shared.list.publish(PublishedList { entries, body: Bytes::from(body) });
    }

    /// Adds this node's unsaved counts to the store. Replaces the saved rows by those of the store,
    /// which have the counts of all nodes. Returns false if the store fails.
    fn save_counts(&mut self) -> bool {
        let half_life = self.shared.options.peek().half_life_seconds;
        while let Some(day_credits) = self.unsaved_by_day.first_entry() {
            let (day, credits) = (*day_credits.key(), day_credits.get().values().cloned());
            let credits: Vec<TopCredit> = credits.collect();
            let evicted: Vec<String> = self.evicted.iter().cloned().collect();
            match self.store.add_credits(&credits, &evicted, day, half_life) {
                Ok(rows) => {
                    day_credits.remove();
                    self.unsaved_hashes -=
                        credits.iter().map(|it| it.dedup_hashes.len()).sum::<usize>();
                    self.evicted.clear();
                    self.stored_domains.extend(rows.iter().map(|row| row.domain.clone()));
                    // A row of the store lacks this node's counts of later days. So a row with such
                    // counts is not replaced.
                    let saved = rows.into_iter().filter(|row| !self.has_unsaved(&row.domain));
                    let saved: Vec<TopRow> = saved.collect();
                    self.rows.extend(saved.into_iter().map(|row| (row.domain.clone(), row)));
                }
                Err(error) => {
                    log::warn!("{error}");
                    return false;
                }
            }
        }
        true
    }

    fn has_unsaved(&self, domain: &str) -> bool {
        self.unsaved_by_day.values().any(|credits| credits.contains_key(domain))
    }

    /// Replaces the rows without unsaved counts by those of the store, which have the counts of all
    /// nodes. Returns false if no row has changed, or if the store fails.
    fn reload_saved_rows(&mut self) -> bool {
        self.last_read_attempt = Instant::now();
        let Ok(rows) = self.store.top_rows() else { return false };
        self.stored_domains = rows.iter().map(|row| row.domain.clone()).collect();
        self.evicted.retain(|domain| self.stored_domains.remove(domain));
        let is_kept =
            |row: &TopRow| !self.has_unsaved(&row.domain) && !self.evicted.contains(&row.domain);
        let fresh = rows.into_iter().filter(is_kept);
        let mut rows: HashMap<String, TopRow> =
            fresh.map(|row| (row.domain.clone(), row)).collect();
        for domain in self.unsaved_by_day.values().flat_map(HashMap::keys) {
            if let Some(row) = self.rows.remove(domain) {
                rows.insert(domain.clone(), row);
            }
        }
        let changed = rows != self.rows;
        self.rows = rows;
        changed
    }
}

#[cfg(test)]
mod tests;
