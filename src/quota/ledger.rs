//! The ledger of this process: its node, its leases and its worker thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::calendar::Calendar;
use super::charge::{Charge, Denial, FailurePolicy};
use super::clock::{BootClock, boot_id_problem};
use super::key_usage::{DayCache, UsageDay};
use super::known_time::KnownTime;
use super::lease::Lease;
use super::node::Node;
use super::shared::SharedWithWorker;
use super::spending::ChargeProgress;
use super::sync::lock_ignoring_poison;
use super::time_of_command::read_known_time;
use super::worker;
use crate::model::believed_time::BelievedTime;
use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;
use crate::store::{Store, StoreError};
use crate::support::serving_flag::ServingFlag;

/// How the ledger handles calls while the store is slow, down or recovering.
#[derive(Clone, Debug)]
pub struct LedgerOptions {
    /// The longest time that a single call waits for the store: `store.deadline`. A batch waits up
    /// to eight times as long.
    pub store_deadline: Duration,
    /// The policy for calls while the store can grant none.
    pub on_failure: FailurePolicy,
    /// The most unsettled calls at a time: calls that this process has admitted without a lease and
    /// that the store has not confirmed yet. An account whose reports fail alone may have as many
    /// for itself.
    pub max_unsettled: u64,
    /// Whether this process serves. Before, the ledger does not tell the store the time.
    pub serving: ServingFlag,
}

/// The state of the store as the ledger sees it, and counts since the start, for metrics and the
/// status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerStatus {
    /// The store counts as down.
    pub store_down: bool,
    /// The store may have lost data. It grants nothing while all nodes report their totals again.
    pub store_recovering: bool,
    /// How many of `store.wait_replicas` lack the latest report.
    pub missing_replicas: u64,
    /// Batches of lease reports that the store committed.
    pub store_commits: u64,
    /// Batches of lease reports and probes that failed, and probes of a server that refused writes.
    pub store_failures: u64,
    /// Unbacked calls that the store has not confirmed yet.
    pub unsettled_calls: u64,
}

/// What an account with a limit has used of a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountUsage<'u> {
    /// The account.
    pub account: &'u str,
    /// The calls that all nodes have spent: this node's exactly, those of other nodes as this node
    /// last learned them.
    pub spent: u64,
    /// The monthly limit in force.
    pub limit: u64,
    /// Whether the store's latest grant gave the account nothing, at most two seconds ago. Another
    /// node may still hold calls of the account.
    pub is_exhausted: bool,
}

/// The ledger of this process. To the store, one run of the process is one node.
pub struct Ledger {
    pub(super) shared: Arc<SharedWithWorker>,
    worker: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// While this many reads of usage wait for the store, others are answered from memory.
const MAX_USAGE_READS_IN_FLIGHT: u64 = 16;

/// After the store granted an account nothing, its lease counts as exhausted for half a second.
/// Here the account counts as exhausted for this many milliseconds more.
const EXHAUSTED_FOR_LONGER_MS: u64 = 1_500;

/// How long a batch may wait, in deadlines of one call: the batches of one account wait for each
/// other.
const MAX_BATCH_TIME_IN_DEADLINES: u32 = 8;

impl Ledger {
    /// Starts a ledger. The worker thread sends reports on `store`; usage is read on
    /// `usage_reader`. A store that does not answer yet is no error: the worker probes it until it
    /// answers.
    pub fn start(
        mut store: Store,
        usage_reader: Store,
        options: LedgerOptions,
        unix_now: i64,
    ) -> Result<Ledger, StoreError> {
        let boot_clock = BootClock::new();
        let boottime_at_start = boot_clock.seconds();
        let mut id = [0u8; 16];
        getrandom::fill(&mut id).map_err(|error| {
            StoreError::Conflict(format!("expected random bits for a node id, but found {error}"))
        })?;
        let (known, is_time_unread) = match read_known_time(&mut store) {
            Ok(known) => (known, false),
            Err(StoreError::Unavailable { .. }) => (KnownTime::default(), true),
            Err(error) => return Err(error),
        };
        let calendar = Calendar::new(known, unix_now, boottime_at_start);
        let LedgerOptions { store_deadline: deadline, on_failure, max_unsettled, serving } =
            options;
        // While the known time is unread, the calendar must not see the store's clock. Then the
        // worker makes the first probe.
        let first_probe = if is_time_unread { None } else { worker::probe_at_start(&mut store) };
        if let Some(store_now) = first_probe.as_ref().and_then(|probe| probe.unix_now) {
            let boottime = boot_clock.seconds();
            calendar.observe_store_clock(
                store_now,
                unix_now + boottime - boottime_at_start,
                boottime,
            );
        }
        let shared = Arc::new(SharedWithWorker {
            node: Node::new(id, calendar, on_failure, max_unsettled),
            boot_clock,
            days: DayCache::default(),
            started_at: Instant::now(),
            store_deadline: deadline,
            serving,
            usage_reader: Mutex::new(usage_reader),
            usage_reads_in_flight: AtomicU64::new(0),
        });
        let worker = worker::spawn(Arc::clone(&shared), store, first_probe, is_time_unread)?;
        Ok(Ledger { shared, worker: Mutex::new(Some(worker)) })
    }

    /// Lets the worker tell the store the time now, because this process serves from now on. Does
    /// not wait for the worker.
    pub fn tell_time(&self) {
        self.shared.node.lock_lease_queue().is_tick_requested = true;
        self.shared.node.worker_wakeup.notify_all();
    }

    /// Returns the account's lease with the limit in force. Creates the lease if there is none; if
    /// the limit has changed, the calls held under the old limit go back to the store.
    pub fn open_lease(&self, account: &str, limit: MonthlyLimit) -> Arc<Lease> {
        self.shared.node.open_lease(account, limit)
    }

    /// The believed time in Unix seconds, by which riskgate judges every request: see
    /// `calendar.rs`.
    pub fn believed_now(&self) -> i64 {
        self.shared.node.calendar.believed_now(self.shared.boot_clock.seconds())
    }

    /// The believed time, and how far riskgate may trust it.
    pub fn believed_time(&self) -> BelievedTime {
        self.shared.node.calendar.believed_time(self.shared.boot_clock.seconds())
    }

    /// Returns true while no month is known, because no clock was ever set. Calls get 500 until a
    /// clock is set.
    pub fn waits_for_clock(&self) -> bool {
        self.shared.node.calendar.waits_for_clock()
    }

    /// Returns a function that reads [`Ledger::believed_now`], for callers that can't borrow the
    /// ledger.
    pub fn believed_now_fn(&self) -> impl Fn() -> i64 + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.node.calendar.believed_now(shared.boot_clock.seconds())
    }

    /// The problem with the clocks that an operator should know of; `None` if there is no problem.
    pub fn clock_problem(&self) -> Option<String> {
        let calendar = &self.shared.node.calendar;
        calendar.clock_problem(self.shared.boot_clock.seconds()).or_else(boot_id_problem)
    }

    /// The month to which a call that arrived at this believed time is charged: the latest month
    /// that has begun.
    pub fn month_to_charge(&self, believed_now: i64) -> Month {
        self.shared.node.calendar.month_to_charge(believed_now, || self.shared.boot_clock.seconds())
    }

    /// Returns the day of `month` in whose usage a call at this believed time counts.
    pub fn usage_day(&self, month: Month, believed_now: i64) -> UsageDay {
        self.shared.days.find_day(month, believed_now)
    }

    /// Spends `calls` calls of the month, all or none, or returns why they are denied. If the lease
    /// holds the calls and no other call waits, the charge waits for nothing. Else the charge may
    /// wait until the store has granted calls: for a single call up to the deadline, for a batch up
    /// to eight times as long.
    pub async fn charge(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        calls: u64,
    ) -> Result<Charge, Denial> {
        if self.waits_for_clock() {
            return Err(Denial::StoreUnavailable);
        }
        let node = &self.shared.node;
        if !lease.has_waiters()
            && let Some(charge) = node.try_charge(lease, month, calls)
        {
            return Ok(charge);
        }
        let store_deadline = self.shared.store_deadline;
        let max_deadlines = if calls == 1 { 1 } else { MAX_BATCH_TIME_IN_DEADLINES };
        let deadline = tokio::time::Instant::now() + store_deadline * max_deadlines;
        let ticket = lease.enter_wait_queue();
        let Ok(_turn) = tokio::time::timeout_at(deadline, ticket.wait_for_turn()).await else {
            return self.charge_after_timeout(lease, month, calls);
        };
        let _end_batch = EndBatchOnDrop { node, lease: (calls > 1).then_some(lease) };
        loop {
            // The call registers for the next reply before it reads the lease, so that it misses no
            // reply in between.
            let notified = lease.notified_of_reply();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let ChargeProgress::Done(done) =
                node.charge(lease, month, calls, self.shared.uptime_ms())
            {
                return done;
            }
            let reply_deadline = tokio::time::Instant::now() + store_deadline;
            let is_late =
                tokio::time::timeout_at(deadline.min(reply_deadline), notified).await.is_err();
            if is_late && (reply_deadline >= deadline || self.shared.is_store_hung()) {
                return self.charge_after_timeout(lease, month, calls);
            }
        }
    }

    /// Spends one call if the lease holds one of this month or a later one, and no other call waits
    /// in its queue. Else returns `None`, and nothing is spent. Never waits.
    pub fn try_charge(&self, lease: &Arc<Lease>, month: Month) -> Option<Charge> {
        if lease.has_waiters() { None } else { self.shared.node.try_charge(lease, month, 1) }
    }

    /// Refunds a charge. Returns false if the charge stays spent:
    /// - Its month is over.
    /// - The charge has a lease, and the limit has changed since.
    /// - The charge is unbacked, and may be in the report in flight or in an answered report.
    pub fn refund(&self, lease: &Arc<Lease>, charge: Charge) -> bool {
        self.shared.node.refund(lease, charge)
    }

    /// Returns the calls that all nodes have spent of the month. This node's count is exact. The
    /// counts of other nodes are read from the store, to which each node reports about once a
    /// second. If they can't be read, those that this node last learned count.
    ///
    /// # Errors
    /// If no month is known, or if this node can't read the other counts and has learned none.
    pub async fn read_spent_by_all(&self, lease: &Arc<Lease>, month: Month) -> Result<u64, Denial> {
        if self.waits_for_clock() {
            return Err(Denial::StoreUnavailable);
        }
        let others = match self.read_others_spent(lease, month).await {
            Some(others) => {
                lease.record_others_spent(month, others);
                others
            }
            None => lease.others_spent(month).ok_or(Denial::StoreUnavailable)?,
        };
        Ok(lease.own_spent(month).saturating_add(others))
    }

    /// Visits each account that has a limit and of which this node knows spent calls in the month,
    /// or knows that the account is exhausted. Locks one lease at a time, for a moment, so calls
    /// hardly wait. Once all nodes have reported an account's calls, the node that reported last
    /// knows their sum.
    pub fn visit_month_usage(&self, month: Month, mut visit: impl FnMut(&AccountUsage<'_>)) {
        let earliest_ms = self.shared.uptime_ms().saturating_sub(EXHAUSTED_FOR_LONGER_MS);
        for lease in &self.shared.node.leases {
            let Some(limit) = lease.limit() else { continue };
            let others = lease.others_spent(month).unwrap_or(0);
            let spent = lease.own_spent(month).saturating_add(others);
            let is_exhausted = lease.is_exhausted(month, earliest_ms);
            if spent > 0 || is_exhausted {
                visit(&AccountUsage { account: lease.account(), spent, limit, is_exhausted });
            }
        }
    }

    /// Reads from the store the calls that other nodes have spent. `None` if the last probe failed,
    /// if the read fails or takes too long, or if too many reads are running. A store that rejects
    /// reports may still be read.
    async fn read_others_spent(&self, lease: &Arc<Lease>, month: Month) -> Option<u64> {
        let shared = Arc::clone(&self.shared);
        let is_unreadable = shared.node.health.is_unreadable.load(Ordering::Relaxed);
        if is_unreadable {
            return None;
        }
        let in_flight = &shared.usage_reads_in_flight;
        if in_flight.fetch_add(1, Ordering::Relaxed) >= MAX_USAGE_READS_IN_FLIGHT {
            in_flight.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let account = lease.account().to_owned();
        let read = tokio::task::spawn_blocking(move || {
            let others = lock_ignoring_poison(&shared.usage_reader).read_spent_by_others(
                &account,
                month,
                &shared.node.id,
            );
            shared.usage_reads_in_flight.fetch_sub(1, Ordering::Relaxed);
            others
        });
        tokio::time::timeout(self.shared.store_deadline, read).await.ok()?.ok()?.ok()
    }

    /// Changes the policy for calls while the store is down.
    pub fn set_on_failure(&self, on_failure: FailurePolicy) {
        self.shared.node.set_on_failure(on_failure);
    }

    /// The state of the store, and counts of its operations.
    pub fn status(&self) -> LedgerStatus {
        let (node, health) = (&self.shared.node, &self.shared.node.health);
        LedgerStatus {
            store_down: health.is_down.load(Ordering::Relaxed),
            store_recovering: node.is_recovering_from_data_loss(self.shared.uptime_ms()),
            missing_replicas: health.missing_replicas.load(Ordering::Relaxed),
            store_commits: health.committed_batches.load(Ordering::Relaxed),
            store_failures: health.failed_operations.load(Ordering::Relaxed),
            unsettled_calls: node.unsettled_calls.total(),
        }
    }

    /// The latest error of the store, if the store counts as down; else `None`.
    pub fn store_problem(&self) -> Option<String> {
        self.shared.node.store_problem()
    }

    /// Why reports about single accounts fail although the store answers: the first ten faults, and
    /// how many follow. A fault that no report has shown for a minute is left out.
    pub fn account_faults(&self) -> Vec<String> {
        self.shared.node.account_faults.describe_present_faults(self.shared.uptime_ms())
    }

    /// Stops the worker and waits for its end. The worker first returns the unspent calls to the
    /// store, for which it tries for some three seconds. The caller makes sure that no request is
    /// in flight.
    pub fn close(&self) {
        self.shared.node.lock_lease_queue().is_ledger_closing = true;
        self.shared.node.worker_wakeup.notify_all();
        if let Some(worker) = lock_ignoring_poison(&self.worker).take() {
            // If the worker panicked, the panic is in the log. The leased calls are lost, as in a
            // crash.
            let _ = worker.join();
        }
    }

    fn charge_after_timeout(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        calls: u64,
    ) -> Result<Charge, Denial> {
        let is_hung = self.shared.is_store_hung();
        self.shared.node.charge_after_timeout(lease, month, calls, is_hung)
    }
}

/// When dropped, ends the wait of a batch that was admitted or denied, or whose client has left.
/// `lease` is `None` for a single call; then nothing happens.
struct EndBatchOnDrop<'l> {
    node: &'l Node,
    lease: Option<&'l Arc<Lease>>,
}

impl Drop for EndBatchOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.lease {
            self.node.end_batch(lease);
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.close();
    }
}
