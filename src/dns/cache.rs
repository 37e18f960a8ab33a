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
use super::finding::WORDS;
use crate::model::domain::Domain;
use crate::store::LearnedRow;
use crate::table::Found;

/// What is known may take so many bytes.
const MAX_BYTES: usize = 32 << 20;
/// What a name costs beside its letters and those of its host.
const OVERHEAD: usize = 200;
/// Names that wait to be asked.
const MAX_QUEUED: usize = 10_000;
/// A name is asked anew so many seconds before its fact ends, so that a flag is not interrupted.
const REFRESH_AHEAD: i64 = 60;
/// How long riskgate waits until it asks about a name again, by how often no resolver answered.
const RETRY_DELAYS: [i64; 4] = [60, 300, 1_800, 7_200];

/// What was learned, and the queue of names to ask about.
#[derive(Default)]
pub struct LearnedCache {
    is_on: AtomicBool,
    known: DashMap<Arc<str>, Known>,
    bytes: AtomicUsize,
    /// The names that are known, roughly in the order in which they came; those at the front make
    /// room, but for such as were looked up since.
    order: Mutex<VecDeque<Arc<str>>>,
    pending: Mutex<Pending>,
    queued: Notify,
    dropped: AtomicU64,
    /// How many names led to each of [`WORDS`].
    asked: [AtomicU64; WORDS.len()],
    answered_at: AtomicI64,
}

struct Known {
    /// As in a list of kind `mx`; none where nothing came.
    mx: Option<Box<str>>,
    /// Until when that holds, in seconds since 1970.
    until: i64,
    /// When it is asked anew.
    ask_at: i64,
    /// How often nothing came, one after the other.
    failures: u8,
    was_used: AtomicBool,
}

/// Names to be asked: those in the queue, and those that are being asked.
#[derive(Default)]
struct Pending {
    names: HashSet<Arc<str>>,
    queue: VecDeque<Arc<str>>,
}

impl LearnedCache {
    /// What a table says of a domain, with what the DNS is known to say of it. A name of which
    /// nothing is known is queued. `now` is in seconds since 1970.
    pub fn apply_learned<'t>(&self, found: Found<'t>, domain: &Domain, now: i64) -> Found<'t> {
        if !self.is_on() || !found.is_open_to_dns() {
            return found;
        }
        let name = domain.as_str();
        let (found, is_due) = match self.known.get(name) {
            None => (found, true),
            Some(known) => {
                if !known.was_used.load(Ordering::Relaxed) {
                    known.was_used.store(true, Ordering::Relaxed);
                }
                let mx = known.mx.as_ref();
                let applied = mx.and_then(|mx| apply_fact(found, mx, known.until, now));
                (applied.unwrap_or(found), now >= known.ask_at)
            }
        };
        if is_due {
            self.enqueue(name);
        }
        found
    }

    /// Whether names are looked up and queued.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Switches it on or off; off, it forgets everything.
    pub fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
        if !is_on {
            let mut order = self.order();
            self.known.clear();
            self.known.shrink_to_fit();
            *order = VecDeque::new();
            self.bytes.store(0, Ordering::Relaxed);
            *self.pending() = Pending::default();
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
        self.queued.notify_one();
    }

    /// The next name to ask; waits for one.
    pub async fn next_queued(&self) -> Arc<str> {
        loop {
            if let Some(name) = self.pending().queue.pop_front() {
                return name;
            }
            self.queued.notified().await;
        }
    }

    /// What was being asked is asked by nobody any more.
    pub fn forget_asked(&self) {
        let mut pending = self.pending();
        pending.names = pending.queue.iter().cloned().collect();
    }

    /// Keeps what came of a question; what was learned, if anything was. What is known of a name
    /// stays where nothing came.
    pub fn answer(&self, name: &Arc<str>, finding: DnsFinding, now: i64) -> Option<LearnedRow> {
        let place = WORDS.iter().position(|word| *word == finding.word()).unwrap_or_default();
        self.asked[place].fetch_add(1, Ordering::Relaxed);
        let learned = finding.into_fact().map(|(mx, holds_for)| {
            let until = now.saturating_add(holds_for);
            LearnedRow { name: name.to_string(), mx, until }
        });
        match &learned {
            Some(learned) => {
                self.answered_at.store(now, Ordering::Relaxed);
                self.learn(learned);
            }
            None => self.schedule_retry(name, now),
        }
        self.pending().names.remove(name);
        learned
    }

    /// Takes over what was learned here or by another node.
    pub fn learn(&self, LearnedRow { name, mx, until }: &LearnedRow) {
        if self.is_on() {
            let (mx, was_used) = (Some(mx.as_str().into()), AtomicBool::new(false));
            let ask_at = until.saturating_sub(REFRESH_AHEAD);
            let known = Known { mx, until: *until, ask_at, failures: 0, was_used };
            self.put(&name.as_str().into(), known);
        }
    }

    /// Has a name asked about again later.
    fn schedule_retry(&self, name: &Arc<str>, now: i64) {
        let pause = |failures: u8| RETRY_DELAYS[usize::from(failures).min(RETRY_DELAYS.len() - 1)];
        if let Some(mut known) = self.known.get_mut(name) {
            known.ask_at = now.saturating_add(pause(known.failures));
            known.failures = known.failures.saturating_add(1);
            return;
        }
        let (ask_at, was_used) = (now.saturating_add(pause(0)), AtomicBool::new(false));
        self.put(name, Known { mx: None, until: 0, ask_at, failures: 1, was_used });
    }

    fn put(&self, name: &Arc<str>, known: Known) {
        let mut order = self.order();
        let mut bytes = self.bytes.load(Ordering::Relaxed) + known.cost(name);
        match self.known.insert(Arc::clone(name), known) {
            Some(before) => bytes -= before.cost(name),
            None => order.push_back(Arc::clone(name)),
        }
        while bytes > MAX_BYTES
            && let Some(first) = order.pop_front()
        {
            let was_used = |known: &Known| known.was_used.swap(false, Ordering::Relaxed);
            if self.known.get(&first).is_some_and(|known| was_used(&known)) {
                order.push_back(first);
            } else if let Some((name, known)) = self.known.remove(&first) {
                bytes -= known.cost(&name);
            }
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// How many names are known; those included of which nothing came.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// How many names wait to be asked.
    pub fn queued(&self) -> usize {
        self.pending().queue.len()
    }

    /// How many names were not taken, since too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many names led to each outcome.
    pub fn asked(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.asked.iter().map(|count| count.load(Ordering::Relaxed));
        WORDS.into_iter().zip(counts)
    }

    /// When a resolver answered last, in seconds since 1970.
    pub fn answered_at(&self) -> Option<i64> {
        Some(self.answered_at.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }

    fn order(&self) -> MutexGuard<'_, VecDeque<Arc<str>>> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn cost(&self, name: &str) -> usize {
        name.len() + self.mx.as_ref().map_or(0, |mx| mx.len()) + OVERHEAD
    }
}

#[cfg(test)]
mod tests;
