//! The thread that exchanges reports and grants with the store, many reports in one commit.
//!
//! The thread owns the store connection for reports and decides when to send them. It admits and
//! denies no calls: leases build the reports and apply the grants. After a failure the thread
//! probes the store before it reports anything, because another server may answer after a failover.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::clock::anchor_time;
use super::lease::Lease;
use super::lease_report::ReportReason;
use super::node::LeaseQueue;
use super::shared::SharedWithWorker;
use super::time_of_command::read_known_time;
use crate::model::believed_time::TimeAnchor;
use crate::model::month::Month;
use crate::store::{Probe, ReportBatchContext, Store, StoreError};
use crate::support::machine_clock::machine_unix_now;

/// How often the worker probes the store, reports spent totals and returns the calls of idle
/// leases.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// For so long after its beginning, a tick gives way to leases that need calls.
const MAX_TICK_DELAY: Duration = Duration::from_millis(500);
/// The most leases whose reports share one commit, so that the store's lock is never held for long.
const MAX_BATCH_LEASES: usize = 512;
/// After this long without a pause, the worker does not use the store for [`YIELD_STORE_LOCK_FOR`],
/// so that a command or another process can take the store's lock.
const YIELD_STORE_LOCK_AFTER: Duration = Duration::from_millis(10);
const YIELD_STORE_LOCK_FOR: Duration = Duration::from_millis(2);
/// How long the worker tries to send the last reports at shutdown.
const SHUTDOWN_REPORT_TIMEOUT: Duration = Duration::from_secs(3);
const SHUTDOWN_RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long the worker gathers leases that can wait, so that their reports share a commit.
const REPORT_BATCH_DELAY: Duration = Duration::from_millis(5);
/// How often a node tells the store its believed time, which other processes read when they start.
const REMEMBER_TIME_INTERVAL: Duration = Duration::from_secs(60);
/// Stands for "no month" in a probe: the probe does not advance the store's latest month.
const NO_MONTH: Month = Month::FIRST;
/// The pause after the first failure. After each further failure, the pause is twice the last one,
/// up to [`MAX_REPORT_BACKOFF`]. Chance shortens each pause, to no less than half.
const MIN_REPORT_BACKOFF: Duration = Duration::from_millis(10);
const MAX_REPORT_BACKOFF: Duration = Duration::from_millis(500);

/// Probes the store before the first call; `None` if the store does not answer. The probe does not
/// advance the store's latest month, because this node has counted nothing yet.
pub(super) fn probe_at_start(store: &mut Store) -> Option<Probe> {
    store.probe(NO_MONTH, None).ok()
}

pub(super) fn spawn(
    shared: Arc<SharedWithWorker>,
    store: Store,
    first_probe: Option<Probe>,
    is_time_unread: bool,
) -> Result<JoinHandle<()>, StoreError> {
    let worker = Worker::new(shared, store, first_probe, is_time_unread);
    let run_worker = move || {
        let _guard = MarkStoreDownOnPanic(Arc::clone(&worker.shared));
        worker.run();
    };
    std::thread::Builder::new().name("ledger".to_owned()).spawn(run_worker).map_err(|error| {
        StoreError::Conflict(format!("expected a thread for the ledger, but found {error}"))
    })
}

/// Marks the store as down if the worker panics, because nothing is reported without this thread.
struct MarkStoreDownOnPanic(Arc<SharedWithWorker>);

impl Drop for MarkStoreDownOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.node.health.is_down.store(true, Ordering::Relaxed);
        }
    }
}

struct Worker {
    shared: Arc<SharedWithWorker>,
    store: Store,
    /// The latest successful probe.
    last_probe: Option<Probe>,
    /// The last probe or batch of reports succeeded, and the store takes writes. If false, the
    /// worker probes the store before it sends the next report.
    is_store_healthy: bool,
    /// Leases that hold calls or have something to report. Each is asked for reports at every tick.
    tracked_leases: Vec<Arc<Lease>>,
    /// Tracked leases that are still to be asked in this tick.
    due_at_tick: VecDeque<Arc<Lease>>,
    /// Tracked leases that were asked in this tick, and whose reports left out counts.
    with_more_counts: VecDeque<Arc<Lease>>,
    last_tick: Instant,
    last_probe_at: Instant,
    /// What this process last told the store of the time, and when.
    remembered_time: Option<(TimeAnchor, Instant)>,
    /// Whether what the store knows of the time is still to be read, because the store did not
    /// answer at the start.
    is_time_unread: bool,
}

impl Worker {
    fn new(
        shared: Arc<SharedWithWorker>,
        store: Store,
        first_probe: Option<Probe>,
        is_time_unread: bool,
    ) -> Worker {
        Worker {
            shared,
            store,
            last_probe: first_probe,
            is_store_healthy: false,
            tracked_leases: Vec::new(),
            due_at_tick: VecDeque::new(),
            with_more_counts: VecDeque::new(),
            last_tick: Instant::now(),
            last_probe_at: Instant::now(),
            remembered_time: None,
            is_time_unread,
        }
    }

    fn run(mut self) {
        let mut pause = Duration::ZERO;
        let mut last_lock_pause = Instant::now();
        self.probe_store();
        self.remember_time_if_due();
        loop {
            let wait_started = Instant::now();
            let (waiting_leases, is_tick_requested, is_closing) = self.wait_for_leases(pause);
            self.track_leases(&waiting_leases);
            if is_closing {
                return self.send_last_reports_and_stop();
            }
            if wait_started.elapsed() >= YIELD_STORE_LOCK_FOR {
                last_lock_pause = Instant::now();
            } else if last_lock_pause.elapsed() >= YIELD_STORE_LOCK_AFTER {
                std::thread::sleep(YIELD_STORE_LOCK_FOR);
                last_lock_pause = Instant::now();
            }
            if !self.is_store_healthy {
                self.probe_store();
            }
            self.report_waiting_and_due_leases(waiting_leases);
            let is_tick_due =
                self.due_at_tick.is_empty() && self.last_tick.elapsed() >= TICK_INTERVAL;
            if is_tick_requested || is_tick_due {
                self.begin_tick();
            } else if self.is_store_healthy && self.last_probe_at.elapsed() >= TICK_INTERVAL {
                // A tick of many leases takes longer than the time between two probes.
                self.probe_store();
            }
            pause = match self.is_store_healthy {
                true => Duration::ZERO,
                // Jitter, so that nodes don't all retry at the same moment.
                false => add_jitter((pause * 2).clamp(MIN_REPORT_BACKOFF, MAX_REPORT_BACKOFF)),
            };
        }
    }

    /// Waits for `pause`, which is zero unless the store failed, and then for a queued lease, a
    /// tick or the shutdown. Returns the queued leases, whether a tick was requested, and whether
    /// the ledger is closing.
    fn wait_for_leases(&self, pause: Duration) -> (Vec<Arc<Lease>>, bool, bool) {
        let node = &self.shared.node;
        if !pause.is_zero() {
            let queue = node.lock_lease_queue();
            if !queue.is_ledger_closing {
                let _ = node
                    .worker_wakeup
                    .wait_timeout_while(queue, pause, |queue| !queue.is_ledger_closing);
            }
        }
        let has_due_leases = !self.due_at_tick.is_empty() || !self.with_more_counts.is_empty();
        let until_tick = match self.is_store_healthy && !has_due_leases {
            true => TICK_INTERVAL.saturating_sub(self.last_tick.elapsed()),
            // After a failure the worker probes the store again even if no lease is queued.
            false => Duration::ZERO,
        };
        let queue = node.lock_lease_queue();
        let is_idle = |queue: &mut LeaseQueue| {
            let is_needed = queue.is_ledger_closing || queue.is_tick_requested;
            queue.waiting_leases.is_empty() && !is_needed
        };
        let result = node.worker_wakeup.wait_timeout_while(queue, until_tick, is_idle);
        let (mut queue, _) = result.unwrap_or_else(PoisonError::into_inner);
        if !queue.waiting_leases.is_empty() {
            let is_urgent = || has_due_leases || node.has_urgent_request.load(Ordering::Relaxed);
            let may_gather = |queue: &mut LeaseQueue| !is_urgent() && !queue.is_ledger_closing;
            let gathered =
                node.worker_wakeup.wait_timeout_while(queue, REPORT_BATCH_DELAY, may_gather);
            (queue, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        }
        node.has_urgent_request.store(false, Ordering::Relaxed);
        let is_tick_requested = std::mem::take(&mut queue.is_tick_requested);
        (std::mem::take(&mut queue.waiting_leases), is_tick_requested, queue.is_ledger_closing)
    }

    fn track_leases(&mut self, waiting_leases: &[Arc<Lease>]) {
        for lease in waiting_leases {
            if lease.mark_tracked_by_worker() {
                self.tracked_leases.push(Arc::clone(lease));
            }
        }
    }

    /// Sends the reports of the waiting leases, many in one commit, and after them one commit of
    /// those that are due. If the tick takes long, both take turns, so that idle leases return
    /// their calls in time. Stops if the store fails: the rest waits for a probe.
    fn report_waiting_and_due_leases(&mut self, mut waiting_leases: Vec<Arc<Lease>>) {
        while self.is_store_healthy {
            let remaining = waiting_leases.split_off(waiting_leases.len().min(MAX_BATCH_LEASES));
            if self.send_reports(&waiting_leases, ReportReason::CallsNeeded).is_none() {
                waiting_leases.iter().for_each(|lease| self.shared.node.enqueue_urgently(lease));
            }
            waiting_leases = remaining;
            let is_last = waiting_leases.is_empty();
            let due_commits = match self.last_tick.elapsed() >= MAX_TICK_DELAY {
                true => 2,
                false => usize::from(is_last),
            };
            for _ in 0..due_commits {
                if self.is_store_healthy {
                    self.report_due_leases();
                }
            }
            if is_last {
                break;
            }
        }
        self.shared.node.requeue(waiting_leases);
    }

    /// Probes a healthy store, lets the tracked leases report unless the last tick goes on, and
    /// tells the store the time if that is due.
    fn begin_tick(&mut self) {
        self.last_tick = Instant::now();
        if self.is_store_healthy && self.probe_store() && self.due_at_tick.is_empty() {
            self.queue_tracked_leases();
        }
        self.remember_time_if_due();
    }

    /// Lets all tracked leases report. Stops tracking those that have nothing left to report.
    fn queue_tracked_leases(&mut self) {
        self.tracked_leases.retain(|lease| {
            let keep = !lease.is_fully_reported();
            if !keep {
                lease.unmark_tracked_by_worker();
            }
            keep
        });
        self.due_at_tick = self.tracked_leases.iter().cloned().collect();
        self.with_more_counts.clear();
    }

    /// Sends one commit of the reports that are due in this tick. Counts that they leave out follow
    /// after the totals of all leases. If the store fails, the tick ends: two reports of a busy
    /// lease soon after another would take the lease for an idle one.
    fn report_due_leases(&mut self) {
        let (due, reason) = match self.due_at_tick.is_empty() {
            false => (&mut self.due_at_tick, ReportReason::Tick),
            true => (&mut self.with_more_counts, ReportReason::CountsLeft),
        };
        let chunk: Vec<Arc<Lease>> = due.drain(..due.len().min(MAX_BATCH_LEASES)).collect();
        let Some(with_more_counts) = self.send_reports(&chunk, reason) else {
            self.due_at_tick.clear();
            self.with_more_counts.clear();
            return;
        };
        let uptime_ms = self.shared.uptime_ms();
        // A store that recovers acknowledges no counts. They follow at the next tick.
        let acknowledges = |lease: &Arc<Lease>| !lease.is_store_unavailable(uptime_ms);
        self.with_more_counts.extend(with_more_counts.into_iter().filter(acknowledges));
    }

    fn send_last_reports_and_stop(mut self) {
        let active = std::mem::take(&mut self.tracked_leases);
        let (started, mut with_more_counts) = (Instant::now(), VecDeque::new());
        for chunk in active.chunks(MAX_BATCH_LEASES) {
            loop {
                if let Some(with_more) = self.send_last_reports(chunk) {
                    with_more_counts.extend(with_more);
                    break;
                }
                if started.elapsed() > SHUTDOWN_REPORT_TIMEOUT {
                    log::error!(
                        "the store did not take the last reports; unreported calls are lost"
                    );
                    return;
                }
                std::thread::sleep(SHUTDOWN_RETRY_PAUSE);
            }
        }
        self.send_last_counts(with_more_counts, started);
        if let Err(error) = self.store.checkpoint_wal() {
            log::warn!("{error}");
        }
    }

    /// Sends the last reports of these leases. Returns those whose reports left out
    /// counts; `None` if the store failed.
    fn send_last_reports(&mut self, leases: &[Arc<Lease>]) -> Option<Vec<Arc<Lease>>> {
        let is_healthy = self.is_store_healthy || self.probe_store();
        if is_healthy { self.send_reports(leases, ReportReason::Shutdown) } else { None }
    }

    /// Sends the counts that the last reports left out, as long as time is left since
    /// `started`. A store that recovers acknowledges none for some seconds.
    fn send_last_counts(&mut self, mut unsent: VecDeque<Arc<Lease>>, started: Instant) {
        while !unsent.is_empty() {
            if started.elapsed() > SHUTDOWN_REPORT_TIMEOUT {
                log::error!(
                    "the store did not take the last counts of usage by day; they are lost"
                );
                return;
            }
            let chunk: Vec<Arc<Lease>> =
                unsent.drain(..unsent.len().min(MAX_BATCH_LEASES)).collect();
            let left = self.send_last_reports(&chunk).unwrap_or(chunk);
            let uptime_ms = self.shared.uptime_ms();
            let is_refused = |lease: &Arc<Lease>| lease.is_store_unavailable(uptime_ms);
            if !self.is_store_healthy || left.iter().any(is_refused) {
                std::thread::sleep(SHUTDOWN_RETRY_PAUSE);
            }
            unsent.extend(left);
        }
    }

    /// Tells the store the believed time once this process serves: each minute, and if the believed
    /// time has made a step. Does nothing while `Calendar::time_to_remember` has no time, or while
    /// the worker has not read the store's time.
    fn remember_time_if_due(&mut self) {
        // If the time is unread, the store may know a better time than this node.
        if self.is_time_unread || !self.shared.serving.is_serving() {
            return;
        }
        let (calendar, boottime) = (&self.shared.node.calendar, self.shared.boot_clock.seconds());
        let Some(anchor) = calendar.time_to_remember(boottime).and_then(anchor_time) else {
            return;
        };
        let offset = |anchor: &TimeAnchor| anchor.unix_now - anchor.boottime;
        let is_known = self.remembered_time.as_ref().is_some_and(|(known, told_at)| {
            (offset(known) - offset(&anchor)).abs() <= 1
                && told_at.elapsed() < REMEMBER_TIME_INTERVAL
        });
        // A failure here says nothing about the reports. The next attempt follows at the next tick.
        if !is_known && self.run_store_operation(|store| store.remember_time(&anchor)).is_ok() {
            self.remembered_time = Some((anchor, Instant::now()));
        }
    }

    /// Reads what the store knows of the time, if the store did not answer at the start.
    fn read_unread_time(&mut self) -> Result<(), StoreError> {
        if self.is_time_unread {
            let known = self.run_store_operation(read_known_time)?;
            let boottime = self.shared.boot_clock.seconds();
            self.shared.node.record_read();
            self.shared.node.calendar.learn_known_time(known, machine_unix_now(), boottime);
            self.is_time_unread = false;
        }
        Ok(())
    }

    /// Probes the store for its identity and time. If the store may have lost data, all leases
    /// report their totals again at once. Returns true if probe and reports succeeded and the store
    /// takes writes.
    fn probe_store(&mut self) -> bool {
        self.last_probe_at = Instant::now();
        let shared = Arc::clone(&self.shared);
        let node = &shared.node;
        // This machine's clock alone must not advance the month of other nodes.
        let month = node.calendar.month_by_store_clock(shared.boot_clock.seconds());
        let month = month.filter(|_| shared.serving.is_serving()).unwrap_or(NO_MONTH);
        let before = self.last_probe.take();
        let outcome = self
            .read_unread_time()
            .and_then(|()| self.run_store_operation(|store| store.probe(month, before.as_ref())));
        self.is_store_healthy = outcome.is_ok();
        let missing = if self.is_store_healthy { self.store.missing_replicas() } else { 0 };
        node.record_missing_replicas(missing);
        match outcome {
            Ok(probe) => {
                if let Some(store_now) = probe.unix_now {
                    // Only a server has a clock, so a server has answered. A probe of SQLite does
                    // no I/O: its success proves nothing and must not clear a failure.
                    match &probe.write_refusal {
                        None => node.record_probe_outcome(None),
                        Some(refusal) => node.record_write_refusal(refusal),
                    }
                    node.calendar.observe_store_clock(
                        store_now,
                        machine_unix_now(),
                        shared.boot_clock.seconds(),
                    );
                } else {
                    node.calendar
                        .observe_machine_clock(machine_unix_now(), shared.boot_clock.seconds());
                }
                let reporting = node.apply_probe(before.as_ref(), &probe, shared.uptime_ms());
                self.track_leases(&reporting);
                if !reporting.is_empty() {
                    // These leases report at once and not at the next tick, because the store
                    // recovers for only a few seconds and needs all totals within that time.
                    // Meanwhile it grants nothing, so other leases can wait.
                    self.queue_tracked_leases();
                    while self.is_store_healthy && !self.due_at_tick.is_empty() {
                        self.report_due_leases();
                    }
                }
                // Reports wait until a probe shows that the server takes writes again.
                self.is_store_healthy &= probe.write_refusal.is_none();
                self.last_probe = Some(probe);
            }
            Err(error) => {
                node.calendar
                    .observe_machine_clock(machine_unix_now(), shared.boot_clock.seconds());
                node.record_probe_outcome(Some(&error));
                self.last_probe = before;
            }
        }
        self.is_store_healthy
    }

    /// Sends the reports of these leases in one commit. Returns the leases whose reports left out
    /// counts; `None` if the store failed.
    fn send_reports(
        &mut self,
        leases: &[Arc<Lease>],
        reason: ReportReason,
    ) -> Option<Vec<Arc<Lease>>> {
        let shared = Arc::clone(&self.shared);
        let node = &shared.node;
        let mut batch = node.collect_reports(leases, reason, shared.uptime_ms());
        let with_more_counts = std::mem::take(&mut batch.leases_with_more_counts);
        let mut outcome = Ok(Vec::new());
        if !batch.reports.is_empty() {
            let context = ReportBatchContext {
                node_id: &node.id,
                latest_begun_month: node.calendar.latest_month(),
                recovery_left: Duration::from_millis(
                    node.store_recovery_ms_left(shared.uptime_ms()),
                ),
                needs_replicas: node.fails_closed(),
            };
            let now = node.calendar.believed_time(shared.boot_clock.seconds());
            outcome = self.run_store_operation(|store| {
                store.set_time(now);
                store.report_leases(context, &batch.reports)
            });
            node.record_missing_replicas(self.store.missing_replicas());
            node.record_report_outcome(outcome.as_ref().err());
        }
        self.is_store_healthy = outcome.is_ok();
        node.deliver_grants(batch, outcome.ok(), shared.uptime_ms());
        self.is_store_healthy.then_some(with_more_counts)
    }

    fn run_store_operation<T>(&mut self, operation: impl FnOnce(&mut Store) -> T) -> T {
        let operation_began_ms = &self.shared.node.health.operation_began_ms;
        operation_began_ms.store(self.shared.uptime_ms(), Ordering::Relaxed);
        let outcome = operation(&mut self.store);
        operation_began_ms.store(0, Ordering::Relaxed);
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

#[cfg(test)]
mod tests;
