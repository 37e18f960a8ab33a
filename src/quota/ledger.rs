//! The ledger of this process: its node, its leases and its thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::calendar::Calendar;
use super::charge::{Denial, FailurePolicy};
use super::clock::BootClock;
use super::lease::{Charge, Lease};
use super::node::{ChargeProgress, Node};
use super::shared::Shared;
use super::sync::lock;
use super::worker;
use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::{Store, StoreError};

/// How the ledger deals with a slow or absent store.
#[derive(Clone, Copy, Debug)]
pub struct LedgerOptions {
    /// How long a call waits for the store at most.
    pub deadline: Duration,
    /// What to do once the store counts as down.
    pub on_failure: FailurePolicy,
    /// The most calls that this process admits without the store's word.
    pub max_unsettled: u64,
}

/// Figures about the ledger, for metrics and the status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerStatus {
    /// The store counts as down.
    pub store_down: bool,
    /// The store has lost something, and all nodes restate what they know.
    pub store_recovering: bool,
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
const MAX_READS_IN_FLIGHT: u64 = 16;

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
        let boottime_at_start = boot_clock.seconds();
        let mut id = [0u8; 16];
        getrandom::fill(&mut id).map_err(|error| {
            StoreError::Conflict(format!("expected random bits for a node id, but found {error}"))
        })?;
        let latest = match store.latest_month() {
            // A node that has not heard the server's clock yet names month 0: none at all.
            Ok(latest) => latest.filter(|month| month.number() > 0),
            Err(StoreError::Unavailable { .. }) => None,
            Err(error) => return Err(error),
        };
        let calendar = Calendar::new(latest, unix_now, boottime_at_start);
        let LedgerOptions { deadline, on_failure, max_unsettled } = options;
        let first_probe = worker::first_probe(&mut store);
        if let Some(store_now) = first_probe.as_ref().and_then(|pulse| pulse.unix_now) {
            let boottime = boot_clock.seconds();
            calendar.observe_store_clock(
                store_now,
                unix_now + boottime - boottime_at_start,
                boottime,
            );
        }
        let shared = Arc::new(Shared {
            node: Node::new(id, calendar, on_failure, max_unsettled),
            boot_clock,
            started: Instant::now(),
            deadline,
            reader: Mutex::new(reader),
            reads_in_flight: AtomicU64::new(0),
        });
        let worker = worker::spawn(Arc::clone(&shared), store, first_probe)?;
        Ok(Ledger { shared, worker: Mutex::new(Some(worker)) })
    }

    /// The lease of an account, at the limit in force. A changed limit voids what is held.
    pub fn lease(&self, account: &str, limit: MonthlyLimit) -> Arc<Lease> {
        self.shared.node.lease(account, limit)
    }

    /// The believed time, in Unix seconds: no step of a clock moves it before the clock is
    /// confirmed or proves steady. What a request is judged by.
    pub fn now(&self) -> i64 {
        self.shared.node.calendar.now(self.shared.boot_clock.seconds())
    }

    /// The same for whoever outlives a borrow of the ledger.
    pub fn uptime_ms(&self) -> impl Fn() -> i64 + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.node.calendar.now(shared.boot_clock.seconds())
    }

    /// What an operator should know of the clocks, if anything.
    pub fn clock_problem(&self) -> Option<String> {
        self.shared.node.calendar.problem(self.shared.boot_clock.seconds())
    }

    /// The month that a call at this believed time belongs to. None reopens.
    pub fn month(&self, unix_now: i64) -> Month {
        self.shared.node.calendar.month_at(unix_now, || self.shared.boot_clock.seconds())
    }

    /// Spends one call of the month, or says why not. One atomic operation while a lease lasts.
    pub async fn charge(&self, lease: &Arc<Lease>, month: Month) -> Result<Charge, Denial> {
        if let Some(spent) = self.try_charge_if_no_waiters(lease, month) {
            return Ok(spent);
        }
        let deadline = tokio::time::Instant::now() + self.shared.deadline;
        let ticket = lease.join_wait_queue();
        let Ok(_first) = tokio::time::timeout_at(deadline, ticket.wait_for_turn()).await else {
            return self.charge_after_timeout(lease, month);
        };
        loop {
            // Registered before the look at the lease, so that no reply is missed in between.
            let replied = lease.replied();
            tokio::pin!(replied);
            replied.as_mut().enable();
            if let ChargeProgress::Done(done) =
                self.shared.node.charge(lease, month, self.shared.clock_fn())
            {
                return done;
            }
            if tokio::time::timeout_at(deadline, replied).await.is_err() {
                return self.charge_after_timeout(lease, month);
            }
        }
    }

    /// Spends one call if one is in hand and nobody waits for it.
    pub fn try_charge_if_no_waiters(&self, lease: &Arc<Lease>, month: Month) -> Option<Charge> {
        if lease.has_waiters() { None } else { self.try_charge(lease, month) }
    }

    /// Spends one call if the lease in hand lasts; never waits.
    pub fn try_charge(&self, lease: &Arc<Lease>, month: Month) -> Option<Charge> {
        self.shared.node.try_charge(lease, month)
    }

    /// Gives a call back to the lease that it came from; nowhere if that is closed.
    pub fn refund(&self, lease: &Arc<Lease>, spent: Charge) {
        self.shared.node.refund(lease, spent);
    }

    /// What all nodes have spent of the month: our own as of now, the others' as they published.
    pub async fn usage(&self, lease: &Arc<Lease>, month: Month) -> Result<u64, Denial> {
        let others = match self.read_others_spent(lease, month).await {
            Some(others) => {
                lease.record_others_spent(month, others);
                others
            }
            None => lease.others_spent(month).ok_or(Denial::Store)?,
        };
        Ok(lease.own_spent(month).saturating_add(others))
    }

    /// Asks the store, unless it is silent or enough others are asking. One that takes no
    /// statements can still be read.
    async fn read_others_spent(&self, lease: &Arc<Lease>, month: Month) -> Option<u64> {
        let shared = Arc::clone(&self.shared);
        let is_silent = shared.node.health.is_unreachable.load(Ordering::Relaxed);
        if is_silent || shared.reads_in_flight.load(Ordering::Relaxed) >= MAX_READS_IN_FLIGHT {
            return None;
        }
        shared.reads_in_flight.fetch_add(1, Ordering::Relaxed);
        let account = lease.account().to_owned();
        let read = tokio::task::spawn_blocking(move || {
            let others = lock(&shared.reader).others_spent(&account, month, &shared.node.id);
            shared.reads_in_flight.fetch_sub(1, Ordering::Relaxed);
            others
        });
        tokio::time::timeout(self.shared.deadline, read).await.ok()?.ok()?.ok()
    }

    /// Changes what is done while the store is down.
    pub fn set_on_failure(&self, on_failure: FailurePolicy) {
        self.shared.node.set_on_failure(on_failure);
    }

    /// How the store is doing.
    pub fn status(&self) -> LedgerStatus {
        let health = &self.shared.node.health;
        LedgerStatus {
            store_down: health.is_down.load(Ordering::Relaxed),
            store_recovering: self.shared.node.is_recovering(self.shared.clock_fn()),
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
        self.shared.node.queue().is_closing = true;
        self.shared.node.worker_wakeup.notify_all();
        if let Some(worker) = lock(&self.worker).take() {
            // A worker that panicked has said so; what it held is lost as by a crash.
            let _ = worker.join();
        }
    }

    fn charge_after_timeout(&self, lease: &Arc<Lease>, month: Month) -> Result<Charge, Denial> {
        self.shared.node.charge_after_timeout(lease, month, self.shared.is_store_hung())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.close();
    }
}
