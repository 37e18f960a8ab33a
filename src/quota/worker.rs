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
use super::lease_report::Occasion;
use super::node::Queue;
use super::shared::Shared;
use crate::model::month::Month;
use crate::store::{Pulse, Round, Store, StoreError};

/// Spent numbers are published, and idle leases given back, this often.
const TICK: Duration = Duration::from_secs(1);
/// The most statements in one commit, so that a lock is never held for long.
const BATCH: usize = 512;
/// After this long without a rest the lock is left alone for [`REST`], so that a command or another
/// process gets its turn.
const STRETCH: Duration = Duration::from_millis(10);
const REST: Duration = Duration::from_millis(2);
/// At most this long to say the last words to a store that does not answer.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Wishes that can wait are gathered for so long, so that they share a commit.
const GATHER: Duration = Duration::from_millis(5);
/// What a node says that knows of none: it brings no month forward.
const NO_MONTH: Month = Month::FIRST;
/// After a failure the store is left alone for this long, then for twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What the store says of itself before the first call, if it answers. No month is brought forward
/// by it: nothing is counted yet.
pub(super) fn first_pulse(store: &mut Store) -> Option<Pulse> {
    store.pulse(NO_MONTH, None).ok()
}

pub(super) fn spawn(
    shared: Arc<Shared>,
    store: Store,
    pulse: Option<Pulse>,
) -> Result<JoinHandle<()>, StoreError> {
    let worker = Worker {
        shared,
        store,
        pulse,
        is_well: false,
        active: Vec::new(),
        last_tick: Instant::now(),
    };
    let speak = move || {
        let _down = DownIfItPanics(Arc::clone(&worker.shared));
        worker.run();
    };
    std::thread::Builder::new().name("ledger".to_owned()).spawn(speak).map_err(|error| {
        StoreError::Conflict(format!("expected a thread for the ledger, but found {error}"))
    })
}

/// Without this thread nothing reaches the store: then it counts as down, and is told so.
struct DownIfItPanics(Arc<Shared>);

impl Drop for DownIfItPanics {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.node.health.down.store(true, Ordering::Relaxed);
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    store: Store,
    /// What the store last said of itself.
    pulse: Option<Pulse>,
    /// It answered last time; else its pulse is taken before it is told anything.
    is_well: bool,
    /// Leases that have something at stake: looked at every second.
    active: Vec<Arc<Lease>>,
    last_tick: Instant,
}

impl Worker {
    fn run(mut self) {
        let mut pause = Duration::ZERO;
        let mut rested = Instant::now();
        self.take_pulse();
        loop {
            let waited = Instant::now();
            let (mut wanting, closing) = self.wait(pause);
            self.activate(&wanting);
            if closing {
                return self.close();
            }
            if waited.elapsed() >= REST {
                rested = Instant::now();
            } else if rested.elapsed() >= STRETCH {
                std::thread::sleep(REST);
                rested = Instant::now();
            }
            let mut healthy = self.is_well || self.take_pulse();
            while healthy && !wanting.is_empty() {
                let rest = wanting.split_off(wanting.len().min(BATCH));
                healthy = self.speak(&wanting, Occasion::Wanted);
                if !healthy {
                    wanting.iter().for_each(|lease| self.shared.node.want(lease));
                }
                wanting = rest;
            }
            self.shared.node.put_back(wanting);
            if self.last_tick.elapsed() >= TICK {
                self.last_tick = Instant::now();
                healthy = healthy && self.take_pulse() && self.tick();
            }
            pause = match healthy {
                true => Duration::ZERO,
                // Not at the same moment as all other nodes.
                false => jitter((pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE)),
            };
        }
    }

    /// Waits for a wish, a tick or the end; `pause` holds wishes back after a failure.
    fn wait(&self, pause: Duration) -> (Vec<Arc<Lease>>, bool) {
        let node = &self.shared.node;
        if !pause.is_zero() {
            let queue = node.queue();
            if !queue.closing {
                let _ = node.wake.wait_timeout_while(queue, pause, |queue| !queue.closing);
            }
        }
        let until_tick = match self.is_well {
            true => TICK.saturating_sub(self.last_tick.elapsed()),
            // Whether somebody wants something or not, a store that was lost is looked for.
            false => Duration::ZERO,
        };
        let queue = node.queue();
        let idle = |queue: &mut Queue| queue.wanting.is_empty() && !queue.closing;
        let waited = node.wake.wait_timeout_while(queue, until_tick, idle);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !queue.wanting.is_empty() {
            let presses = || node.pressing.load(Ordering::Relaxed);
            let patient = |queue: &mut Queue| !presses() && !queue.closing;
            let gathered = node.wake.wait_timeout_while(queue, GATHER, patient);
            (queue, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        }
        node.pressing.store(false, Ordering::Relaxed);
        (std::mem::take(&mut queue.wanting), queue.closing)
    }

    fn activate(&mut self, wanting: &[Arc<Lease>]) {
        for lease in wanting {
            if lease.mark_active() {
                self.active.push(Arc::clone(lease));
            }
        }
    }

    fn tick(&mut self) -> bool {
        let active = self.active.clone();
        let healthy = active.chunks(BATCH).all(|chunk| self.speak(chunk, Occasion::Tick));
        self.active.retain(|lease| {
            let keep = !lease.is_settled();
            if !keep {
                lease.unmark_active();
            }
            keep
        });
        healthy
    }

    fn close(mut self) {
        let active = std::mem::take(&mut self.active);
        let begun = Instant::now();
        for chunk in active.chunks(BATCH) {
            while !((self.is_well || self.take_pulse()) && self.speak(chunk, Occasion::Close)) {
                if begun.elapsed() > LAST_WORDS {
                    log::error!("the store did not take the last numbers; unspent calls are lost");
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
    fn take_pulse(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let node = &shared.node;
        // A month by this machine's clock alone is none that others should count in.
        let month = node.calendar.month_of_store(shared.boot_clock.seconds()).unwrap_or(NO_MONTH);
        let before = self.pulse.take();
        let outcome = self.timed(|store| store.pulse(month, before.as_ref()));
        self.is_well = outcome.is_ok();
        node.note_replicas(if self.is_well { self.store.missing_replicas() } else { 0 });
        match outcome {
            Ok(pulse) => {
                if let Some(store_now) = pulse.unix_now {
                    // A server has answered; a file has only been there.
                    node.note_pulse(None);
                    node.calendar.hear_store(store_now, unix_now(), shared.boot_clock.seconds());
                } else {
                    node.calendar.hear_machine(unix_now(), shared.boot_clock.seconds());
                }
                let restating = node.feel(before.as_ref(), &pulse, shared.clock());
                self.activate(&restating);
                if !restating.is_empty() {
                    // Now, not at the next tick: the store grants nothing until it knows.
                    self.is_well = self.tick();
                }
                self.pulse = Some(pulse);
            }
            Err(error) => {
                node.calendar.hear_machine(unix_now(), shared.boot_clock.seconds());
                node.note_pulse(Some(&error));
                self.pulse = before;
            }
        }
        self.is_well
    }

    /// One commit for all that these leases have to say; false if the store failed.
    fn speak(&mut self, leases: &[Arc<Lease>], occasion: Occasion) -> bool {
        let shared = Arc::clone(&self.shared);
        let node = &shared.node;
        let batch = node.collect(leases, occasion);
        let mut outcome = Ok(Vec::new());
        if !batch.statements.is_empty() {
            let round = Round {
                node: &node.id,
                month: node.calendar.latest(),
                settle: Duration::from_millis(node.settles_for(shared.clock())),
                needs_replicas: node.fails_closed(),
            };
            outcome = self.timed(|store| store.state(round, &batch.statements));
            node.note_replicas(self.store.missing_replicas());
            node.note(outcome.as_ref().err());
        }
        self.is_well = outcome.is_ok();
        node.deliver(batch, outcome.ok(), shared.clock());
        self.is_well
    }

    fn timed<T>(&mut self, operation: impl FnOnce(&mut Store) -> T) -> T {
        let busy_since = &self.shared.node.health.busy_since;
        busy_since.store(self.shared.clock(), Ordering::Relaxed);
        let outcome = operation(&mut self.store);
        busy_since.store(0, Ordering::Relaxed);
        outcome
    }
}

/// Between half and all of a pause.
fn jitter(pause: Duration) -> Duration {
    let mut random = [0u8; 1];
    // Without randomness there is only no jitter.
    let _ = getrandom::fill(&mut random);
    pause / 2 + pause.mul_f64(f64::from(random[0]) / 512.0)
}
