//! The ledger of this process: its node, its leases and its worker thread.

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

/// How the ledger treats a slow or absent store.
#[derive(Clone, Copy, Debug)]
pub struct LedgerOptions {
    /// How long a call waits for the store at most.
    pub deadline: Duration,
    /// The policy for calls while the store counts as down.
    pub on_failure: FailurePolicy,
    /// The most unsettled calls: calls that this process admits without a lease while the store is
    /// down.
    pub max_unsettled: u64,
}

/// Figures about the ledger, for metrics and the status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerStatus {
    /// The store counts as down.
    pub store_down: bool,
    /// The store has lost data, and all nodes report their totals again.
    pub store_recovering: bool,
    /// How many of `store.wait_replicas` lack the latest report.
    pub missing_replicas: u64,
    /// Store operations that succeeded.
    pub store_commits: u64,
    /// Store operations that failed.
    pub store_failures: u64,
    /// Calls admitted while the store was down and not yet reported to it.
    pub unsettled: u64,
}

/// The ledger of this process run: one node.
pub struct Ledger {
    pub(super) shared: Arc<Shared>,
    worker: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// At most this many reads of usage run at a time. Further ones are answered from memory.
const MAX_READS_IN_FLIGHT: u64 = 16;

impl Ledger {
    /// Starts a ledger. Its worker thread writes to `store`; `reader` answers usage. A server that
    /// does not answer yet counts as down.
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
            // A node that has not read the server's clock yet writes month 0, which is no month.
            Ok(latest) => latest.filter(|month| month.number() > 0),
            Err(StoreError::Unavailable { .. }) => None,
            Err(error) => return Err(error),
        };
        let calendar = Calendar::new(latest, unix_now, boottime_at_start);
        let LedgerOptions { deadline, on_failure, max_unsettled } = options;
        let first_probe = worker::first_probe(&mut store);
        if let Some(store_now) = first_probe.as_ref().and_then(|probe| probe.unix_now) {
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

    /// The believed time in Unix seconds, which every request is judged by. A step of a clock moves
    /// it only once another clock confirms the step, or the clock has been steady long enough.
    pub fn now(&self) -> i64 {
        self.shared.node.calendar.now(self.shared.boot_clock.seconds())
    }

    /// Returns a clock that reads [`Ledger::now`], for callers that can't borrow the ledger.
    pub fn clock(&self) -> impl Fn() -> i64 + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.node.calendar.now(shared.boot_clock.seconds())
    }

    /// The problem with the clocks that an operator should know of, if there is one.
    pub fn clock_problem(&self) -> Option<String> {
        self.shared.node.calendar.problem(self.shared.boot_clock.seconds())
    }

    /// The month that a call at this believed time belongs to. A month that has ended never begins
    /// again.
    pub fn month(&self, unix_now: i64) -> Month {
        self.shared.node.calendar.month_at(unix_now, || self.shared.boot_clock.seconds())
    }

    /// Spends one call of the month, or says why it is denied. One atomic operation while a lease
    /// lasts.
    pub async fn charge(&self, lease: &Arc<Lease>, month: Month) -> Result<Charge, Denial> {
        if let Some(charge) = self.try_charge_if_no_waiters(lease, month) {
            return Ok(charge);
        }
        let deadline = tokio::time::Instant::now() + self.shared.deadline;
        let ticket = lease.join_wait_queue();
        let Ok(_turn) = tokio::time::timeout_at(deadline, ticket.wait_for_turn()).await else {
            return self.charge_after_timeout(lease, month);
        };
        loop {
            // Registered before the lease is read, so that no reply is missed in between.
            let notified = lease.reply_notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let ChargeProgress::Done(done) =
                self.shared.node.charge(lease, month, self.shared.uptime_ms())
            {
                return done;
            }
            if tokio::time::timeout_at(deadline, notified).await.is_err() {
                return self.charge_after_timeout(lease, month);
            }
        }
    }

    /// Spends one call if the lease holds one and no other call waits for it.
    pub fn try_charge_if_no_waiters(&self, lease: &Arc<Lease>, month: Month) -> Option<Charge> {
        if lease.has_waiters() { None } else { self.try_charge(lease, month) }
    }

    /// Spends one call if the lease holds one; never waits.
    pub fn try_charge(&self, lease: &Arc<Lease>, month: Month) -> Option<Charge> {
        self.shared.node.try_charge(lease, month)
    }

    /// Refunds a call to its lease. If that lease is over, the call stays spent.
    pub fn refund(&self, lease: &Arc<Lease>, charge: Charge) {
        self.shared.node.refund(lease, charge);
    }

    /// The calls that all nodes have spent of the month: this node's count is current, the others'
    /// is the one that they last published.
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

    /// Reads from the store what other nodes have spent. `None` if the store is unreachable or too
    /// many reads are running. A store that rejects reports can still be read.
    async fn read_others_spent(&self, lease: &Arc<Lease>, month: Month) -> Option<u64> {
        let shared = Arc::clone(&self.shared);
        let is_unreachable = shared.node.health.is_unreachable.load(Ordering::Relaxed);
        if is_unreachable || shared.reads_in_flight.load(Ordering::Relaxed) >= MAX_READS_IN_FLIGHT {
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

    /// Changes the policy for calls while the store is down.
    pub fn set_on_failure(&self, on_failure: FailurePolicy) {
        self.shared.node.set_on_failure(on_failure);
    }

    /// How the store is doing.
    pub fn status(&self) -> LedgerStatus {
        let health = &self.shared.node.health;
        LedgerStatus {
            store_down: health.is_down.load(Ordering::Relaxed),
            store_recovering: self.shared.node.is_recovering(self.shared.uptime_ms()),
            missing_replicas: health.missing_replicas.load(Ordering::Relaxed),
            store_commits: health.commits.load(Ordering::Relaxed),
            store_failures: health.failures.load(Ordering::Relaxed),
            unsettled: health.unsettled.load(Ordering::Relaxed),
        }
    }

    /// Why the store counts as down and what to do, as far as riskgate knows.
    pub fn store_problem(&self) -> Option<String> {
        self.shared.node.store_problem()
    }

    /// Returns every unspent call to the store and stops the worker. Call it once no request is in
    /// flight.
    pub fn close(&self) {
        self.shared.node.queue().is_closing = true;
        self.shared.node.worker_wakeup.notify_all();
        if let Some(worker) = lock(&self.worker).take() {
            // A worker that panicked has logged it. Its leased calls are lost, as in a crash.
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
