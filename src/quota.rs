//! The quota ledger: monthly limits, spent from leases in memory, kept in the store.
//!
//! Owns this process's node id, every account's [`Lease`] and the thread that talks to the store.
//! Admitting a call is one atomic operation while a lease lasts; the store is asked in the
//! background, before the lease runs out. It never sees a key or a request, and it never admits
//! on a store's promise that is not yet on disk.

mod calendar;
mod lease;
mod word;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dashmap::DashMap;

use crate::month::Month;
use crate::store::{LimitRow, Store, StoreError};

use calendar::Calendar;
pub use lease::{Lease, Spent};
pub use word::MAX_HELD;

/// What to do with calls while the store is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Serve, count locally, settle later.
    Open,
    /// Refuse with our own failure.
    Closed,
}

/// What the caller may still spend, for the RateLimit headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The month's limit.
    pub limit: u64,
    /// What remains of it.
    pub remaining: u64,
    /// Whole seconds until it starts anew.
    pub reset_in: u64,
}

/// How the ledger deals with a slow or absent store.
#[derive(Clone, Copy, Debug)]
pub struct LedgerOptions {
    /// How long a call waits for the store at most.
    pub deadline: Duration,
    /// What to do once the store counts as down.
    pub on_failure: OnFailure,
}

/// Why a call was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The month's calls are spent.
    Exhausted,
    /// The store did not answer in time, or is down and the policy is closed.
    Store,
}

/// Figures about the ledger, for metrics and the status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerStatus {
    /// The store counts as down.
    pub store_down: bool,
    /// Commits that succeeded.
    pub store_commits: u64,
    /// Operations that failed.
    pub store_failures: u64,
    /// Calls admitted while the store was down and not yet stated to it.
    pub unsettled: u64,
}

/// The ledger of this process run: one node.
pub struct Ledger {
    shared: Arc<Shared>,
    worker: Mutex<Option<std::thread::JoinHandle<()>>>,
}

struct Shared {
    /// 128 random bits drawn at start, never stored or configured: a shared id would turn
    /// idempotence into over-admission.
    node: [u8; 16],
    leases: DashMap<String, Arc<Lease>>,
    calendar: Calendar,
    queue: Mutex<Queue>,
    wake: Condvar,
    reader: Mutex<Store>,
    started: Instant,
    deadline: Duration,
    fails_closed: AtomicBool,
    health: Health,
}

#[derive(Default)]
struct Queue {
    wanting: Vec<Arc<Lease>>,
    closing: bool,
}

#[derive(Default)]
struct Health {
    down: AtomicBool,
    failures_in_a_row: AtomicU32,
    /// Milliseconds since the start when the running operation began; 0 when none runs.
    busy_since: AtomicU64,
    commits: AtomicU64,
    failures: AtomicU64,
    unsettled: AtomicU64,
}

/// Failures in a row after which the store counts as down: one slow commit is not an outage.
const FAILURES_TO_OPEN: u32 = 3;

impl Ledger {
    /// Opens a ledger: `store` is written by its own thread, `reader` answers usage.
    pub fn start(
        store: Store,
        reader: Store,
        options: LedgerOptions,
        unix_now: i64,
    ) -> Result<Ledger, StoreError> {
        let mut node = [0u8; 16];
        getrandom::fill(&mut node).map_err(|error| {
            StoreError::Conflict(format!("expected random bits for a node id, but found {error}"))
        })?;
        let calendar = Calendar::new(reader.latest_month()?, unix_now, 0);
        let shared = Arc::new(Shared {
            node,
            leases: DashMap::new(),
            calendar,
            queue: Mutex::default(),
            wake: Condvar::new(),
            reader: Mutex::new(reader),
            started: Instant::now(),
            deadline: options.deadline,
            fails_closed: AtomicBool::new(options.on_failure == OnFailure::Closed),
            health: Health::default(),
        });
        let worker = worker::spawn(Arc::clone(&shared), store)?;
        Ok(Ledger { shared, worker: Mutex::new(Some(worker)) })
    }

    /// The lease of an account, at the limit in force. A changed limit voids what is held.
    pub fn lease(&self, account: &str, limit: LimitRow) -> Arc<Lease> {
        let lease = match self.shared.leases.get(account) {
            Some(lease) => Arc::clone(&lease),
            None => Arc::clone(
                &self
                    .shared
                    .leases
                    .entry(account.to_owned())
                    .or_insert_with(|| Arc::new(Lease::new(account, limit))),
            ),
        };
        if lease.set_limit(limit) {
            self.shared.want(&lease);
        }
        lease
    }

    /// The month that a call at this second belongs to. A clock that steps back reopens none,
    /// and one that jumps ahead is held until it proves steady.
    pub fn month(&self, unix_now: i64) -> Month {
        let passed = || self.shared.started.elapsed().as_secs().cast_signed();
        self.shared.calendar.month(unix_now, passed)
    }

    /// Spends one call of the month, or says why not. One atomic operation while a lease lasts.
    pub async fn charge(&self, lease: &Arc<Lease>, month: Month) -> Result<Spent, Denied> {
        if !lease.has_line()
            && let Some(spent) = self.try_charge(lease, month)
        {
            return Ok(spent);
        }
        let deadline = tokio::time::Instant::now() + self.shared.deadline;
        let place = lease.stand_in_line();
        let Ok(_first) = tokio::time::timeout_at(deadline, place.first()).await else {
            return self.charge_late(lease, month);
        };
        self.charge_slowly(lease, month, deadline).await
    }

    /// Spends one call if the lease in hand lasts; never waits.
    pub fn try_charge(&self, lease: &Arc<Lease>, month: Month) -> Option<Spent> {
        let spent = lease.take(month)?;
        if lease.is_low() {
            self.shared.want(lease);
        }
        Some(spent)
    }

    /// Gives a call back, to the lease that it came from; nowhere if that is closed.
    pub fn give_back(&self, spent: Spent) {
        if spent.is_blind() {
            if spent.take_back_blind() {
                self.shared.health.unsettled.fetch_sub(1, Ordering::Relaxed);
            }
        } else if let Some(lease) = spent.give_back() {
            // More than a lease may hold: the store gets the rest back.
            self.shared.want(&lease);
        }
    }

    /// What all nodes have spent of the month: our own as of now, the others' as they published.
    pub async fn usage(&self, lease: &Arc<Lease>, month: Month) -> Result<u64, Denied> {
        let shared = Arc::clone(&self.shared);
        let account = lease.account().to_owned();
        let read = tokio::task::spawn_blocking(move || {
            let reader = lock(&shared.reader);
            reader.others_spent(&account, month, &shared.node)
        });
        let others = match tokio::time::timeout(self.shared.deadline, read).await {
            Ok(Ok(Ok(others))) => others,
            _ => lease.others_spent(month).ok_or(Denied::Store)?,
        };
        Ok(lease.own_spent(month).saturating_add(others))
    }

    /// Changes what is done while the store is down.
    pub fn set_on_failure(&self, on_failure: OnFailure) {
        self.shared.fails_closed.store(on_failure == OnFailure::Closed, Ordering::Relaxed);
    }

    /// How the store is doing.
    pub fn status(&self) -> LedgerStatus {
        let health = &self.shared.health;
        LedgerStatus {
            store_down: health.down.load(Ordering::Relaxed),
            store_commits: health.commits.load(Ordering::Relaxed),
            store_failures: health.failures.load(Ordering::Relaxed),
            unsettled: health.unsettled.load(Ordering::Relaxed),
        }
    }

    /// Gives every unspent call back to the store and stops; called once nothing is in flight.
    pub fn close(&self) {
        lock(&self.shared.queue).closing = true;
        self.shared.wake.notify_all();
        if let Some(worker) = lock(&self.worker).take() {
            // A worker that panicked has said so; what it held is lost as by a crash.
            let _ = worker.join();
        }
    }

    async fn charge_slowly(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        deadline: tokio::time::Instant,
    ) -> Result<Spent, Denied> {
        loop {
            // Registered before the look at the lease, so that no reply is missed in between.
            let replied = lease.replied();
            tokio::pin!(replied);
            replied.as_mut().enable();
            if let Some(spent) = self.try_charge(lease, month) {
                return Ok(spent);
            }
            if lease.is_refused(month, self.shared.clock()) {
                return Err(Denied::Exhausted);
            }
            if self.shared.is_down() {
                return self.charge_blindly(lease, month);
            }
            self.shared.want_for(lease, month);
            if tokio::time::timeout_at(deadline, replied).await.is_err() {
                return self.charge_late(lease, month);
            }
        }
    }

    /// The deadline has passed: a store that hangs is down, one that is merely slow is not.
    fn charge_late(&self, lease: &Arc<Lease>, month: Month) -> Result<Spent, Denied> {
        self.shared.note_hang();
        match self.shared.is_down() {
            true => self.charge_blindly(lease, month),
            false => Err(Denied::Store),
        }
    }

    fn charge_blindly(&self, lease: &Arc<Lease>, month: Month) -> Result<Spent, Denied> {
        // The queue keeps what must be stated once the store is back.
        self.shared.want_for(lease, month);
        if self.shared.fails_closed.load(Ordering::Relaxed) {
            return Err(Denied::Store);
        }
        let spent = lease.take_blindly(month).ok_or(Denied::Exhausted)?;
        self.shared.health.unsettled.fetch_add(1, Ordering::Relaxed);
        Ok(spent)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn want(&self, lease: &Arc<Lease>) {
        if lease.mark_queued() {
            lock(&self.queue).wanting.push(Arc::clone(lease));
            self.wake.notify_one();
        }
    }

    fn want_for(&self, lease: &Arc<Lease>, month: Month) {
        lease.ask_for(month);
        self.want(lease);
    }

    /// Milliseconds since the start, never 0.
    fn clock(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }

    fn is_down(&self) -> bool {
        self.health.down.load(Ordering::Relaxed)
    }

    /// A call's deadline passed: an operation that runs for twice that long hangs, and hanging
    /// is an outage; a queue that is merely long is not.
    fn note_hang(&self) {
        let since = self.health.busy_since.load(Ordering::Relaxed);
        let limit = 2 * self.deadline.as_millis() as u64;
        if since != 0 && self.clock().saturating_sub(since) > limit {
            self.health.down.store(true, Ordering::Relaxed);
        }
    }
}

/// A poisoned lock is taken all the same: every holder leaves its numbers whole at each step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
