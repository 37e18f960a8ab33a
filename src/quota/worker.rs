//! The thread that speaks with the store: many statements, one commit.
//!
//! Owns the writing connection and its rhythm. It decides nothing about numbers; leases say what
//! to state, and believe only what comes back from here. After a failure it takes the store's
//! pulse before it says anything: it may be another store by then.

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

/// Spent numbers are published, and idle leases given back, this often.
const TICK: Duration = Duration::from_secs(1);
/// The most statements in one commit, so that a lock is never held for long.
const MAX_BATCH: usize = 512;
/// After this long without a rest the lock is left alone for [`LOCK_PAUSE`], so that a command or another
/// process gets its turn.
const MAX_BUSY: Duration = Duration::from_millis(10);
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// At most this long to say the last words to a store that does not answer.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Wishes that can wait are gathered for so long, so that they share a commit.
const BATCH_DELAY: Duration = Duration::from_millis(5);
/// What a node says that knows of none: it brings no month forward.
const NO_MONTH: Month = Month::FIRST;
/// After a failure the store is left alone for this long, then for twice as long each time.
const MIN_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// What the store says of itself before the first call, if it answers. No month is brought forward
/// by it: nothing is counted yet.
pub(super) fn first_probe(store: &mut Store) -> Option<Probe> {
    store.probe(NO_MONTH, None).ok()
}

pub(super) fn spawn(
    shared: Arc<Shared>,
    store: Store,
    pulse: Option<Probe>,
) -> Result<JoinHandle<()>, StoreError> {
    let worker = Worker {
        shared,
        store,
        last_probe: pulse,
        is_healthy: false,
        active_leases: Vec::new(),
        last_tick: Instant::now(),
    };
    let speak = move || {
        let _down = MarkDownOnPanic(Arc::clone(&worker.shared));
        worker.run();
    };
    std::thread::Builder::new().name("ledger".to_owned()).spawn(speak).map_err(|error| {
        StoreError::Conflict(format!("expected a thread for the ledger, but found {error}"))
    })
}

/// Without this thread nothing reaches the store: then it counts as down, and is told so.
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
    /// What the store last said of itself.
    last_probe: Option<Probe>,
    /// It answered last time; else its pulse is taken before it is told anything.
    is_healthy: bool,
    /// Leases that have something at stake: looked at every second.
    active_leases: Vec<Arc<Lease>>,
    last_tick: Instant,
}

impl Worker {
    fn run(mut self) {
        let mut pause = Duration::ZERO;
        let mut last_lock_pause = Instant::now();
        self.probe_store();
        loop {
            let waited = Instant::now();
            let (mut waiting_leases, closing) = self.wait_for_leases(pause);
            self.track_active(&waiting_leases);
            if closing {
                return self.close();
            }
            if waited.elapsed() >= LOCK_PAUSE {
                last_lock_pause = Instant::now();
            } else if last_lock_pause.elapsed() >= MAX_BUSY {
                std::thread::sleep(LOCK_PAUSE);
                last_lock_pause = Instant::now();
            }
            let mut healthy = self.is_healthy || self.probe_store();
            while healthy && !waiting_leases.is_empty() {
                let remaining = waiting_leases.split_off(waiting_leases.len().min(MAX_BATCH));
                healthy = self.send_reports(&waiting_leases, ReportReason::CallsNeeded);
                if !healthy {
                    waiting_leases.iter().for_each(|lease| self.shared.node.request_refill(lease));
                }
                waiting_leases = remaining;
            }
            self.shared.node.requeue(waiting_leases);
            if self.last_tick.elapsed() >= TICK {
                self.last_tick = Instant::now();
                healthy = healthy && self.probe_store() && self.report_active_leases();
            }
            pause = match healthy {
                true => Duration::ZERO,
                // Not at the same moment as all other nodes.
                false => add_jitter((pause * 2).clamp(MIN_BACKOFF, MAX_BACKOFF)),
            };
        }
    }

    /// Waits for a wish, a tick or the end; `pause` holds wishes back after a failure.
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
            // Whether somebody wants something or not, a store that was lost is looked for.
            false => Duration::ZERO,
        };
        let queue = node.queue();
        let idle = |queue: &mut Queue| queue.waiting_leases.is_empty() && !queue.is_closing;
        let waited = node.worker_wakeup.wait_timeout_while(queue, until_tick, idle);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !queue.waiting_leases.is_empty() {
            let presses = || node.has_urgent.load(Ordering::Relaxed);
            let patient = |queue: &mut Queue| !presses() && !queue.is_closing;
            let gathered = node.worker_wakeup.wait_timeout_while(queue, BATCH_DELAY, patient);
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
        let healthy =
            active.chunks(MAX_BATCH).all(|chunk| self.send_reports(chunk, ReportReason::Tick));
        self.active_leases.retain(|lease| {
            let keep = !lease.is_fully_reported();
            if !keep {
                lease.unmark_active();
            }
            keep
        });
        healthy
    }

    fn close(mut self) {
        let active = std::mem::take(&mut self.active_leases);
        let boottime_at_start = Instant::now();
        for chunk in active.chunks(MAX_BATCH) {
            while !((self.is_healthy || self.probe_store())
                && self.send_reports(chunk, ReportReason::Shutdown))
            {
                if boottime_at_start.elapsed() > FLUSH_TIMEOUT {
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

    /// Asks the store who it is and what time it has; what it may have lost is said once more.
    fn probe_store(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let node = &shared.node;
        // A month by this machine's clock alone is none that others should count in.
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
            Ok(pulse) => {
                if let Some(store_now) = pulse.unix_now {
                    // A server has answered; a file has only been there.
                    node.record_probe_outcome(None);
                    node.calendar.observe_store_clock(
                        store_now,
                        unix_now(),
                        shared.boot_clock.seconds(),
                    );
                } else {
                    node.calendar.observe_machine_clock(unix_now(), shared.boot_clock.seconds());
                }
                let reporting = node.on_probe(before.as_ref(), &pulse, shared.clock_fn());
                self.track_active(&reporting);
                if !reporting.is_empty() {
                    // Now, not at the next tick: the store grants nothing until it knows.
                    self.is_healthy = self.report_active_leases();
                }
                self.last_probe = Some(pulse);
            }
            Err(error) => {
                node.calendar.observe_machine_clock(unix_now(), shared.boot_clock.seconds());
                node.record_probe_outcome(Some(&error));
                self.last_probe = before;
            }
        }
        self.is_healthy
    }

    /// One commit for all that these leases have to say; false if the store failed.
    fn send_reports(&mut self, leases: &[Arc<Lease>], occasion: ReportReason) -> bool {
        let shared = Arc::clone(&self.shared);
        let node = &shared.node;
        let batch = node.collect_reports(leases, occasion);
        let mut outcome = Ok(Vec::new());
        if !batch.statements.is_empty() {
            let round = BatchContext {
                node: &node.id,
                month: node.calendar.latest_month(),
                recovery_left: Duration::from_millis(node.recovery_ms_left(shared.clock_fn())),
                needs_replicas: node.fails_closed(),
            };
            outcome = self.run_timed(|store| store.report_leases(round, &batch.statements));
            node.record_missing_replicas(self.store.missing_replicas());
            node.record_report_outcome(outcome.as_ref().err());
        }
        self.is_healthy = outcome.is_ok();
        node.deliver_grants(batch, outcome.ok(), shared.clock_fn());
        self.is_healthy
    }

    fn run_timed<T>(&mut self, operation: impl FnOnce(&mut Store) -> T) -> T {
        let operation_began_at = &self.shared.node.health.operation_began_at;
        operation_began_at.store(self.shared.clock_fn(), Ordering::Relaxed);
        let outcome = operation(&mut self.store);
        operation_began_at.store(0, Ordering::Relaxed);
        outcome
    }
}

/// Between half and all of a pause.
fn add_jitter(pause: Duration) -> Duration {
    let mut random = [0u8; 1];
    // Without randomness there is only no jitter.
    let _ = getrandom::fill(&mut random);
    pause / 2 + pause.mul_f64(f64::from(random[0]) / 512.0)
}
