//! The thread that speaks with the store: many statements, one commit.
//!
//! Owns the writing connection and its rhythm. It decides nothing about numbers; leases say what
//! to state, and believe only what comes back from here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::lease::{Lease, Occasion};
use super::{FAILURES_TO_OPEN, Shared, lock};
use crate::month::Month;
use crate::store::{Standing, Statement, Store, StoreError};

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

pub(super) fn spawn(shared: Arc<Shared>, store: Store) -> Result<JoinHandle<()>, StoreError> {
    let worker = Worker { shared, store, active: Vec::new(), last_tick: Instant::now() };
    std::thread::Builder::new().name("ledger".to_owned()).spawn(move || worker.run()).map_err(
        |error| {
            StoreError::Conflict(format!("expected a thread for the ledger, but found {error}"))
        },
    )
}

struct Worker {
    shared: Arc<Shared>,
    store: Store,
    /// Leases that have something at stake: looked at every second.
    active: Vec<Arc<Lease>>,
    last_tick: Instant,
}

struct Batch {
    leases: Vec<(Arc<Lease>, Option<u64>, Vec<Month>)>,
    statements: Vec<Statement>,
}

impl Worker {
    fn run(mut self) {
        let mut pause = Duration::ZERO;
        let mut rested = Instant::now();
        loop {
            let waited = Instant::now();
            let (mut wanting, closing) = self.wait(pause);
            if closing {
                return self.close();
            }
            if waited.elapsed() >= REST {
                rested = Instant::now();
            } else if rested.elapsed() >= STRETCH {
                std::thread::sleep(REST);
                rested = Instant::now();
            }
            self.activate(&wanting);
            let mut healthy = true;
            while healthy && !wanting.is_empty() {
                let rest = wanting.split_off(wanting.len().min(BATCH));
                healthy = self.speak(&wanting, Occasion::Wanted);
                if !healthy {
                    self.requeue(wanting);
                }
                wanting = rest;
            }
            if !healthy {
                self.requeue(wanting);
            }
            if self.last_tick.elapsed() >= TICK {
                self.last_tick = Instant::now();
                healthy = self.tick() && healthy;
            }
            pause = match healthy {
                true => Duration::ZERO,
                // Retried soon at first; a store that stays away is asked once in half a second.
                false => (pause * 2).clamp(Duration::from_millis(10), Duration::from_millis(500)),
            };
        }
    }

    /// Waits for a wish, a tick or the end; `pause` holds wishes back after a failure.
    fn wait(&self, pause: Duration) -> (Vec<Arc<Lease>>, bool) {
        if !pause.is_zero() {
            let queue = lock(&self.shared.queue);
            if !queue.closing {
                let _ = self.shared.wake.wait_timeout_while(queue, pause, |queue| !queue.closing);
            }
        }
        let until_tick = TICK.saturating_sub(self.last_tick.elapsed());
        let queue = lock(&self.shared.queue);
        let idle = |queue: &mut super::Queue| queue.wanting.is_empty() && !queue.closing;
        let (mut queue, _) = self
            .shared
            .wake
            .wait_timeout_while(queue, until_tick, idle)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        (std::mem::take(&mut queue.wanting), queue.closing)
    }

    fn activate(&mut self, wanting: &[Arc<Lease>]) {
        for lease in wanting {
            if lease.mark_active() {
                self.active.push(Arc::clone(lease));
            }
        }
    }

    fn requeue(&self, leases: Vec<Arc<Lease>>) {
        for lease in leases {
            // Those who wait look again: the store may count as down by now.
            lease.wake();
            if lease.mark_queued() {
                lock(&self.shared.queue).wanting.push(lease);
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
            while !self.speak(chunk, Occasion::Close) {
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

    /// One commit for all that these leases have to say; false if the store failed.
    fn speak(&mut self, leases: &[Arc<Lease>], occasion: Occasion) -> bool {
        let batch = Batch::collect(leases, occasion);
        if batch.statements.is_empty() {
            leases.iter().for_each(|lease| lease.wake());
            return true;
        }
        let health = &self.shared.health;
        health.busy_since.store(self.shared.clock(), Ordering::Relaxed);
        let month = self.shared.calendar.latest();
        let outcome = self.store.state(&self.shared.node, month, &batch.statements);
        health.busy_since.store(0, Ordering::Relaxed);
        self.note(&outcome);
        let healthy = outcome.is_ok();
        batch.deliver(outcome.ok(), &self.shared);
        healthy
    }

    fn note(&self, outcome: &Result<Vec<Standing>, StoreError>) {
        let health = &self.shared.health;
        match outcome {
            Ok(_) => {
                health.commits.fetch_add(1, Ordering::Relaxed);
                health.failures_in_a_row.store(0, Ordering::Relaxed);
                if health.down.swap(false, Ordering::Relaxed) {
                    log::warn!("the store answers again");
                }
            }
            Err(error) => {
                health.failures.fetch_add(1, Ordering::Relaxed);
                let failures = health.failures_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
                if failures == 1 {
                    log::warn!("{error}");
                }
                if failures >= FAILURES_TO_OPEN && !health.down.swap(true, Ordering::Relaxed) {
                    log::error!("the store counts as down: {error}");
                }
            }
        }
    }
}

impl Batch {
    fn collect(leases: &[Arc<Lease>], occasion: Occasion) -> Batch {
        let mut batch = Batch { leases: Vec::new(), statements: Vec::new() };
        for lease in leases {
            if occasion == Occasion::Wanted {
                // From here on a new wish queues it again.
                lease.unmark_queued();
            }
            let said = lease.statement(occasion);
            let sequence = said.statement.as_ref().map(|statement| statement.sequence);
            let months = said.farewells.iter().map(|farewell| farewell.month).collect();
            batch.statements.extend(said.statement);
            batch.statements.extend(said.farewells);
            batch.leases.push((Arc::clone(lease), sequence, months));
        }
        batch
    }

    fn deliver(self, standings: Option<Vec<Standing>>, shared: &Shared) {
        let clock = shared.clock();
        let mut standings = standings.map(Vec::into_iter);
        for (lease, sequence, months) in self.leases {
            match &mut standings {
                Some(standings) => {
                    let mut settled = 0;
                    if let Some(sequence) = sequence
                        && let Some(standing) = standings.next()
                    {
                        settled += lease.reply(sequence, standing, clock);
                    }
                    for (month, _) in months.into_iter().zip(&mut *standings) {
                        settled += lease.said_farewell(month);
                    }
                    shared.health.unsettled.fetch_sub(settled, Ordering::Relaxed);
                }
                None => lease.no_reply(),
            }
            lease.wake();
        }
    }
}
