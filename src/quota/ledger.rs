//! The ledger of this process: its node, its leases and its thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::calendar::Calendar;
use super::charge::{Denied, OnFailure};
use super::clock::BootClock;
use super::lease::{Lease, Spent};
use super::node::{Node, Step};
use super::shared::Shared;
use super::sync::lock;
use super::worker;
use crate::model::month::Month;
use crate::model::monthly_limit::LimitRow;
use crate::store::{Store, StoreError};

/// How the ledger deals with a slow or absent store.
#[derive(Clone, Copy, Debug)]
pub struct LedgerOptions {
    /// How long a call waits for the store at most.
    pub deadline: Duration,
    /// What to do once the store counts as down.
    pub on_failure: OnFailure,
    /// The most calls that this process admits without the store's word.
    pub max_unsettled: u64,
}

/// Figures about the ledger, for metrics and the status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerStatus {
    /// The store counts as down.
    pub store_down: bool,
    /// The store has lost something, and all nodes restate what they know.
    pub store_settling: bool,
    /// So many of `store.wait_replicas` lack what was last stated.
    pub missing_replicas: u64,
    /// Operations that succeeded.
    pub store_commits: u64,
    /// Operations that failed.
    pub store_failures: u64,
    /// Calls admitted while the store was down and not yet stated to it.
    pub unsettled: u64,
}

/// The ledger of this process run: one node.
pub struct Ledger {
    pub(super) shared: Arc<Shared>,
    worker: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// More reads of usage than these are answered by what is known already.
const MAX_READERS: u64 = 16;

impl Ledger {
    /// Opens a ledger: `store` is written by its own thread, `reader` answers usage. A server
    /// that does not answer yet counts as one that went down.
    pub fn start(
        mut store: Store,
        reader: Store,
        options: LedgerOptions,
        unix_now: i64,
    ) -> Result<Ledger, StoreError> {
        let boot_clock = BootClock::new();
        let begun = boot_clock.seconds();
        let mut id = [0u8; 16];
        getrandom::fill(&mut id).map_err(|error| {
            StoreError::Conflict(format!("expected random bits for a node id, but found {error}"))
        })?;
        let latest = match store.latest_month() {
            // A node that has not heard the server's clock yet names month 0: none at all.
            Ok(latest) => latest.filter(|month| month.number() > 0),
            Err(StoreError::Unanswered { .. }) => None,
            Err(error) => return Err(error),
        };
        let calendar = Calendar::new(latest, unix_now, begun);
        let LedgerOptions { deadline, on_failure, max_unsettled } = options;
        let first = worker::first_pulse(&mut store);
        if let Some(store_now) = first.as_ref().and_then(|pulse| pulse.unix_now) {
            let passed = boot_clock.seconds();
            calendar.hear_store(store_now, unix_now + passed - begun, passed);
        }
        let shared = Arc::new(Shared {
            node: Node::new(id, calendar, on_failure, max_unsettled),
            boot_clock,
            started: Instant::now(),
            deadline,
            reader: Mutex::new(reader),
            readers: AtomicU64::new(0),
        });
        let worker = worker::spawn(Arc::clone(&shared), store, first)?;
        Ok(Ledger { shared, worker: Mutex::new(Some(worker)) })
    }

    /// The lease of an account, at the limit in force. A changed limit voids what is held.
    pub fn lease(&self, account: &str, limit: LimitRow) -> Arc<Lease> {
        self.shared.node.lease(account, limit)
    }

    /// The believed time, in Unix seconds: no step of a clock moves it before the clock is
    /// confirmed or proves steady. What a request is judged by.
    pub fn now(&self) -> i64 {
        self.shared.node.calendar.now(self.shared.boot_clock.seconds())
    }

    /// The same for whoever outlives a borrow of the ledger.
    pub fn clock(&self) -> impl Fn() -> i64 + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.node.calendar.now(shared.boot_clock.seconds())
    }

    /// What an operator should know of the clocks, if anything.
    pub fn clock_problem(&self) -> Option<String> {
        self.shared.node.calendar.problem(self.shared.boot_clock.seconds())
    }

    /// The month that a call at this believed time belongs to. None reopens.
    pub fn month(&self, unix_now: i64) -> Month {
        self.shared.node.calendar.month(unix_now, || self.shared.boot_clock.seconds())
    }

    /// Spends one call of the month, or says why not. One atomic operation while a lease lasts.
    pub async fn charge(&self, lease: &Arc<Lease>, month: Month) -> Result<Spent, Denied> {
        if let Some(spent) = self.charge_at_once(lease, month) {
            return Ok(spent);
        }
        let deadline = tokio::time::Instant::now() + self.shared.deadline;
        let place = lease.stand_in_line();
        let Ok(_first) = tokio::time::timeout_at(deadline, place.first()).await else {
            return self.charge_late(lease, month);
        };
        loop {
            // Registered before the look at the lease, so that no reply is missed in between.
            let replied = lease.replied();
            tokio::pin!(replied);
            replied.as_mut().enable();
            if let Step::Done(done) = self.shared.node.charge(lease, month, self.shared.clock()) {
                return done;
            }
            if tokio::time::timeout_at(deadline, replied).await.is_err() {
                return self.charge_late(lease, month);
            }
        }
    }

    /// Spends one call if one is in hand and nobody waits for it.
    pub fn charge_at_once(&self, lease: &Arc<Lease>, month: Month) -> Option<Spent> {
        if lease.has_line() { None } else { self.try_charge(lease, month) }
    }

    /// Spends one call if the lease in hand lasts; never waits.
    pub fn try_charge(&self, lease: &Arc<Lease>, month: Month) -> Option<Spent> {
        self.shared.node.try_charge(lease, month)
    }

    /// Gives a call back to the lease that it came from; nowhere if that is closed.
    pub fn give_back(&self, lease: &Arc<Lease>, spent: Spent) {
        self.shared.node.give_back(lease, spent);
    }

    /// What all nodes have spent of the month: our own as of now, the others' as they published.
    pub async fn usage(&self, lease: &Arc<Lease>, month: Month) -> Result<u64, Denied> {
        let others = match self.others_spent(lease, month).await {
            Some(others) => {
                lease.note_others_spent(month, others);
                others
            }
            None => lease.others_spent(month).ok_or(Denied::Store)?,
        };
        Ok(lease.own_spent(month).saturating_add(others))
    }

    /// Asks the store, unless it is silent or enough others are asking. One that takes no
    /// statements can still be read.
    async fn others_spent(&self, lease: &Arc<Lease>, month: Month) -> Option<u64> {
        let shared = Arc::clone(&self.shared);
        let is_silent = shared.node.health.is_silent.load(Ordering::Relaxed);
        if is_silent || shared.readers.load(Ordering::Relaxed) >= MAX_READERS {
            return None;
        }
        shared.readers.fetch_add(1, Ordering::Relaxed);
        let account = lease.account().to_owned();
        let read = tokio::task::spawn_blocking(move || {
            let others = lock(&shared.reader).others_spent(&account, month, &shared.node.id);
            shared.readers.fetch_sub(1, Ordering::Relaxed);
            others
        });
        tokio::time::timeout(self.shared.deadline, read).await.ok()?.ok()?.ok()
    }

    /// Changes what is done while the store is down.
    pub fn set_on_failure(&self, on_failure: OnFailure) {
        self.shared.node.set_on_failure(on_failure);
    }

    /// How the store is doing.
    pub fn status(&self) -> LedgerStatus {
        let health = &self.shared.node.health;
        LedgerStatus {
            store_down: health.down.load(Ordering::Relaxed),
            store_settling: self.shared.node.is_settling(self.shared.clock()),
            missing_replicas: health.missing_replicas.load(Ordering::Relaxed),
            store_commits: health.commits.load(Ordering::Relaxed),
            store_failures: health.failures.load(Ordering::Relaxed),
            unsettled: health.unsettled.load(Ordering::Relaxed),
        }
    }

    /// Why the store counts as down, and what to do, as far as it is known.
    pub fn store_problem(&self) -> Option<String> {
        self.shared.node.store_problem()
    }

    /// Gives every unspent call back to the store and stops; called once nothing is in flight.
    pub fn close(&self) {
        self.shared.node.queue().closing = true;
        self.shared.node.wake.notify_all();
        if let Some(worker) = lock(&self.worker).take() {
            // A worker that panicked has said so; what it held is lost as by a crash.
            let _ = worker.join();
        }
    }

    fn charge_late(&self, lease: &Arc<Lease>, month: Month) -> Result<Spent, Denied> {
        self.shared.node.charge_late(lease, month, self.shared.hangs())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.close();
    }
}
