//! The thread that exchanges reports and grants with the store, many reports in one commit.
//!
//! Owns the writing connection and the timing. It decides nothing about calls: leases build the
//! reports and apply the grants. After a failure it probes the store before it reports anything,
//! because another store may answer by then.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::clock::unix_now;
use super::lease::Lease;
use super::lease_report::ReportReason;
use super::node::Queue;
use super::shared::Shared;
use crate::model::month::Month;
use crate::store::{BatchContext, Probe, Store, StoreError};

/// How often spent totals are published and idle leases returned.
const TICK: Duration = Duration::from_secs(1);
/// The most reports in one commit, so that the store's lock is never held for long.
const MAX_BATCH: usize = 512;
/// After working this long without a break, the worker leaves the store's lock alone for
/// [`LOCK_PAUSE`], so that a command or another process can take it.
const MAX_BUSY: Duration = Duration::from_millis(10);
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// How long the worker tries to send the final reports at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long requests that can wait are gathered, so that they share a commit.
const BATCH_DELAY: Duration = Duration::from_millis(5);
/// A month for a node that knows none: it advances no month in the store.
const NO_MONTH: Month = Month::FIRST;
/// The pause after a failure. It doubles with each further failure, up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// Probes the store before the first call; `None` if it does not answer. The probe advances no
/// month, because nothing has been counted yet.
pub(super) fn first_probe(store: &mut Store) -> Option<Probe> {
    store.probe(NO_MONTH, None).ok()
}

pub(super) fn spawn(
    shared: Arc<Shared>,
    store: Store,
    probe: Option<Probe>,
) -> Result<JoinHandle<()>, StoreError> {
    let worker = Worker {
        shared,
        store,
        last_probe: probe,
        is_healthy: false,
        active_leases: Vec::new(),
        last_tick: Instant::now(),
    };
    let run_worker = move || {
        let _guard = MarkDownOnPanic(Arc::clone(&worker.shared));
        worker.run();
    };
    std::thread::Builder::new().name("ledger".to_owned()).spawn(run_worker).map_err(|error| {
        StoreError::Conflict(format!("expected a thread for the ledger, but found {error}"))
    })
}

/// Marks the store as down if the worker panics, because nothing is reported without this thread.
struct MarkDownOnPanic(Arc<Shared>);

impl Drop for MarkDownOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.node.health.is_down.store(true, Ordering::Relaxed);
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    store: Store,
    /// The latest successful probe.
    last_probe: Option<Probe>,
    /// The last operation succeeded. If not, the store is probed before the next report.
    is_healthy: bool,
    /// Leases with calls or reports outstanding, visited every second.
    active_leases: Vec<Arc<Lease>>,
    last_tick: Instant,
}

impl Worker {
    fn run(mut self) {
        let mut pause = Duration::ZERO;
        let mut last_lock_pause = Instant::now();
        self.probe_store();
        loop {
            let wait_started = Instant::now();
            let (mut waiting_leases, is_closing) = self.wait_for_leases(pause);
            self.track_active(&waiting_leases);
            if is_closing {
                return self.close();
            }
            if wait_started.elapsed() >= LOCK_PAUSE {
                last_lock_pause = Instant::now();
            } else if last_lock_pause.elapsed() >= MAX_BUSY {
                std::thread::sleep(LOCK_PAUSE);
                last_lock_pause = Instant::now();
            }
            let mut is_healthy = self.is_healthy || self.probe_store();
            while is_healthy && !waiting_leases.is_empty() {
                let remaining = waiting_leases.split_off(waiting_leases.len().min(MAX_BATCH));
                is_healthy = self.send_reports(&waiting_leases, ReportReason::CallsNeeded);
                if !is_healthy {
                    waiting_leases.iter().for_each(|lease| self.shared.node.request_refill(lease));
                }
                waiting_leases = remaining;
            }
            self.shared.node.requeue(waiting_leases);
            if self.last_tick.elapsed() >= TICK {
                self.last_tick = Instant::now();
                is_healthy = is_healthy && self.probe_store() && self.report_active_leases();
            }
            pause = match is_healthy {
                true => Duration::ZERO,
                // Jitter, so that nodes don't all retry at the same moment.
                false => add_jitter((pause * 2).clamp(MIN_BACKOFF, MAX_BACKOFF)),
            };
        }
    }

    /// Waits for a queued lease, a tick or the shutdown. After a failure, `pause` delays queued
    /// leases.
    fn wait_for_leases(&self, pause: Duration) -> (Vec<Arc<Lease>>, bool) {
        let node = &self.shared.node;
        if !pause.is_zero() {
            let queue = node.queue();
            if !queue.is_closing {
                let _ =
                    node.worker_wakeup.wait_timeout_while(queue, pause, |queue| !queue.is_closing);
            }
        }
        let until_tick = match self.is_healthy {
            true => TICK.saturating_sub(self.last_tick.elapsed()),
            // Even with no request queued, the worker keeps probing a store that was lost.
            false => Duration::ZERO,
        };
        let queue = node.queue();
        let is_idle = |queue: &mut Queue| queue.waiting_leases.is_empty() && !queue.is_closing;
        let result = node.worker_wakeup.wait_timeout_while(queue, until_tick, is_idle);
        let (mut queue, _) = result.unwrap_or_else(PoisonError::into_inner);
        if !queue.waiting_leases.is_empty() {
            let is_urgent = || node.has_urgent.load(Ordering::Relaxed);
            let may_gather = |queue: &mut Queue| !is_urgent() && !queue.is_closing;
            let gathered = node.worker_wakeup.wait_timeout_while(queue, BATCH_DELAY, may_gather);
            (queue, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        }
        node.has_urgent.store(false, Ordering::Relaxed);
        (std::mem::take(&mut queue.waiting_leases), queue.is_closing)
    }

    fn track_active(&mut self, waiting_leases: &[Arc<Lease>]) {
        for lease in waiting_leases {
            if lease.mark_active() {
                self.active_leases.push(Arc::clone(lease));
            }
        }
    }

    fn report_active_leases(&mut self) -> bool {
        let active = self.active_leases.clone();
        let is_healthy =
            active.chunks(MAX_BATCH).all(|chunk| self.send_reports(chunk, ReportReason::Tick));
        self.active_leases.retain(|lease| {
            let keep = !lease.is_fully_reported();
            if !keep {
                lease.unmark_active();
            }
            keep
        });
        is_healthy
    }

    fn close(mut self) {
        let active = std::mem::take(&mut self.active_leases);
        let started = Instant::now();
        for chunk in active.chunks(MAX_BATCH) {
            while !((self.is_healthy || self.probe_store())
                && self.send_reports(chunk, ReportReason::Shutdown))
            {
                if started.elapsed() > FLUSH_TIMEOUT {
                    log::error!(
                        "the store did not take the final report; its unspent leased calls are lost"
                    );
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if let Err(error) = self.store.checkpoint() {
            log::warn!("{error}");
        }
    }

    /// Probes the store for its identity and time. If it may have lost data, all leases report
    /// again.
    fn probe_store(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let node = &shared.node;
        // A month that only this machine's clock says must not advance the month of other nodes.
        let month = node.calendar.store_month(shared.boot_clock.seconds()).unwrap_or(NO_MONTH);
        let before = self.last_probe.take();
        let outcome = self.run_timed(|store| store.probe(month, before.as_ref()));
        self.is_healthy = outcome.is_ok();
        node.record_missing_replicas(if self.is_healthy {
            self.store.missing_replicas()
        } else {
            0
        });
        match outcome {
            Ok(probe) => {
                if let Some(store_now) = probe.unix_now {
                    // A server has answered. A probe of an embedded store proves nothing, so it
                    // clears no failure.
                    node.record_probe_outcome(None);
                    node.calendar.observe_store_clock(
                        store_now,
                        unix_now(),
                        shared.boot_clock.seconds(),
                    );
                } else {
                    node.calendar.observe_machine_clock(unix_now(), shared.boot_clock.seconds());
                }
                let reporting = node.on_probe(before.as_ref(), &probe, shared.uptime_ms());
                self.track_active(&reporting);
                if !reporting.is_empty() {
                    // At once and not at the next tick: the store grants nothing until it has these
                    // reports.
                    self.is_healthy = self.report_active_leases();
                }
                self.last_probe = Some(probe);
            }
            Err(error) => {
                node.calendar.observe_machine_clock(unix_now(), shared.boot_clock.seconds());
                node.record_probe_outcome(Some(&error));
                self.last_probe = before;
            }
        }
        self.is_healthy
    }

    /// Sends the reports of these leases in one commit. Returns false if the store failed.
    fn send_reports(&mut self, leases: &[Arc<Lease>], reason: ReportReason) -> bool {
        let shared = Arc::clone(&self.shared);
        let node = &shared.node;
        let batch = node.collect_reports(leases, reason);
        let mut outcome = Ok(Vec::new());
        if !batch.reports.is_empty() {
            let context = BatchContext {
                node: &node.id,
                month: node.calendar.latest_month(),
                recovery_left: Duration::from_millis(node.recovery_ms_left(shared.uptime_ms())),
                needs_replicas: node.fails_closed(),
            };
            outcome = self.run_timed(|store| store.report_leases(context, &batch.reports));
            node.record_missing_replicas(self.store.missing_replicas());
            node.record_report_outcome(outcome.as_ref().err());
        }
        self.is_healthy = outcome.is_ok();
        node.deliver_grants(batch, outcome.ok(), shared.uptime_ms());
        self.is_healthy
    }

    fn run_timed<T>(&mut self, operation: impl FnOnce(&mut Store) -> T) -> T {
        let operation_began_at = &self.shared.node.health.operation_began_at;
        operation_began_at.store(self.shared.uptime_ms(), Ordering::Relaxed);
        let outcome = operation(&mut self.store);
        operation_began_at.store(0, Ordering::Relaxed);
        outcome
    }
}

/// Returns a random duration between half of `pause` and all of it.
fn add_jitter(pause: Duration) -> Duration {
    let mut random = [0u8; 1];
    // If no randomness is available, the pause is halved and has no jitter.
    let _ = getrandom::fill(&mut random);
    pause / 2 + pause.mul_f64(f64::from(random[0]) / 512.0)
}
