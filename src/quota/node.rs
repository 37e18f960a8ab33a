//! One process run as the store knows it: its leases, its health, and what it says when.
//!
//! Decides without waiting and without I/O: time comes in as milliseconds since the start, replies
//! as values. The ledger waits for it, the worker carries its words to the store; a simulation
//! does both.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use dashmap::DashMap;

use super::accounting::Returned;
use super::calendar::Calendar;
use super::charge::{Denied, OnFailure};
use super::lease::{Lease, Need, Spent};
use super::lease_report::Occasion;
use super::sync::lock;
use crate::model::month::Month;
use crate::model::monthly_limit::LimitRow;
use crate::store::{Pulse, Standing, Statement, StoreError};

/// Failures in a row after which the store counts as down: one slow commit is not an outage.
const FAILURES_TO_OPEN: u32 = 3;

pub(super) struct Node {
    /// 128 random bits drawn at start, never stored or configured: a shared id would turn
    /// idempotence into over-admission.
    pub id: [u8; 16],
    pub calendar: Calendar,
    pub leases: DashMap<String, Arc<Lease>>,
    pub health: Health,
    queue: Mutex<Queue>,
    /// One of those who want something can't wait for others.
    pub pressing: AtomicBool,
    pub wake: Condvar,
    fails_closed: AtomicBool,
    /// The most calls that may be admitted blindly and not yet settled.
    max_unsettled: u64,
}

#[derive(Default)]
pub(super) struct Queue {
    pub wanting: Vec<Arc<Lease>>,
    pub closing: bool,
}

#[derive(Default)]
pub(super) struct Health {
    pub down: AtomicBool,
    failures_in_a_row: AtomicU32,
    /// What went wrong last; none since it answered.
    problem: Mutex<Option<String>>,
    /// The last statement failed, whatever the pulse says: a server may be read-only or full.
    refuses: AtomicBool,
    /// The last pulse failed: the store is not there for reading either.
    pub is_silent: AtomicBool,
    /// How many replicas lack what was last stated.
    pub missing_replicas: AtomicU64,
    /// When the running operation began; 0 when none runs.
    pub busy_since: AtomicU64,
    /// Until when all accounts settle after a loss.
    settling_until: AtomicU64,
    pub commits: AtomicU64,
    pub failures: AtomicU64,
    pub unsettled: AtomicU64,
}

/// What became of a call, so far.
pub(super) enum Step {
    Done(Result<Spent, Denied>),
    /// It takes a word from the store, which is asked for one.
    Wait,
}

/// Statements of several leases, and who is to hear the replies.
pub(super) struct Batch {
    leases: Vec<(Arc<Lease>, Option<u64>, Vec<Month>)>,
    pub statements: Vec<Statement>,
}

impl Node {
    pub(super) fn new(
        id: [u8; 16],
        calendar: Calendar,
        on_failure: OnFailure,
        max_unsettled: u64,
    ) -> Node {
        Node {
            id,
            calendar,
            leases: DashMap::new(),
            health: Health::default(),
            queue: Mutex::default(),
            pressing: AtomicBool::new(false),
            wake: Condvar::new(),
            fails_closed: AtomicBool::new(on_failure == OnFailure::Closed),
            max_unsettled,
        }
    }

    /// The lease of an account, at the limit in force. A changed limit voids what is held.
    pub(super) fn lease(&self, account: &str, limit: LimitRow) -> Arc<Lease> {
        let lease = match self.leases.get(account) {
            Some(lease) => Arc::clone(&lease),
            None => Arc::clone(
                &self
                    .leases
                    .entry(account.to_owned())
                    .or_insert_with(|| Arc::new(Lease::new(account, limit))),
            ),
        };
        if lease.set_limit(limit) {
            self.want(&lease);
        }
        lease
    }

    pub(super) fn set_on_failure(&self, on_failure: OnFailure) {
        self.fails_closed.store(on_failure == OnFailure::Closed, Ordering::Relaxed);
    }

    // --- calls ---

    /// Spends one call if the lease in hand lasts; never waits.
    pub(super) fn try_charge(&self, lease: &Arc<Lease>, month: Month) -> Option<Spent> {
        let (spent, need) = lease.take(month)?;
        match need {
            Need::Nothing => {}
            Need::Soon => self.queue_up(lease, false),
            Need::Now => self.want(lease),
        }
        Some(spent)
    }

    /// Spends one call, refuses it, or asks the store for what that takes.
    pub(super) fn charge(&self, lease: &Arc<Lease>, month: Month, clock: u64) -> Step {
        // The store's clock may have said since that the month of this call has not begun.
        let month = month.min(self.calendar.latest());
        if let Some(spent) = self.try_charge(lease, month) {
            return Step::Done(Ok(spent));
        }
        if lease.is_refused(month, clock) {
            return Step::Done(Err(Denied::Exhausted));
        }
        if self.is_down() || self.is_settling(clock) || lease.is_settling(clock) {
            return Step::Done(self.charge_blindly(lease, month));
        }
        lease.ask_for(month);
        self.want(lease);
        Step::Wait
    }

    /// The deadline has passed: a store that hangs is down, one that is merely slow is not.
    pub(super) fn charge_late(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        hangs: bool,
    ) -> Result<Spent, Denied> {
        if hangs {
            self.health.down.store(true, Ordering::Relaxed);
        }
        match self.is_down() {
            true => self.charge_blindly(lease, month),
            false => Err(Denied::Store),
        }
    }

    fn charge_blindly(&self, lease: &Arc<Lease>, month: Month) -> Result<Spent, Denied> {
        // The queue keeps what must be stated once the store is back.
        lease.ask_for(month);
        self.want(lease);
        if self.fails_closed() {
            return Err(Denied::Store);
        }
        let month = month.min(self.calendar.latest());
        let unsettled = &self.health.unsettled;
        if unsettled.fetch_add(1, Ordering::Relaxed) >= self.max_unsettled {
            unsettled.fetch_sub(1, Ordering::Relaxed);
            return Err(Denied::Store);
        }
        lease.take_blindly(month).ok_or_else(|| {
            unsettled.fetch_sub(1, Ordering::Relaxed);
            Denied::Exhausted
        })
    }

    /// Gives a call back, to the lease that it came from; false if that is closed.
    pub(super) fn give_back(&self, lease: &Arc<Lease>, spent: Spent) -> bool {
        if spent.blind {
            let taken_back = lease.take_back_blind(&spent);
            self.health.unsettled.fetch_sub(u64::from(taken_back), Ordering::Relaxed);
            return taken_back;
        }
        let returned = lease.give_back(&spent);
        if returned != Returned::Closed {
            // The store is to hear of it, also when it heard the last word long ago.
            self.want(lease);
        }
        returned != Returned::Closed
    }

    // --- what the store is told ---

    pub(super) fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    pub(super) fn want(&self, lease: &Arc<Lease>) {
        self.queue_up(lease, true);
    }

    fn queue_up(&self, lease: &Arc<Lease>, pressing: bool) {
        let is_new = lease.mark_queued();
        let presses = || pressing && !self.pressing.load(Ordering::Relaxed);
        // Looked at first: a call that changes nothing takes no lock.
        if !is_new && !presses() {
            return;
        }
        let mut queue = self.queue();
        let presses = presses();
        let wakes = queue.wanting.is_empty() || presses;
        if is_new {
            queue.wanting.push(Arc::clone(lease));
        }
        if presses {
            self.pressing.store(true, Ordering::Relaxed);
        }
        drop(queue);
        // The first wakes the worker, and the first that can't wait does so again.
        if wakes {
            self.wake.notify_one();
        }
    }

    /// Wishes that were taken from the queue and not spoken of go back, and those who wait look
    /// again: the store may count as down by now.
    pub(super) fn put_back(&self, wanting: Vec<Arc<Lease>>) {
        wanting.iter().for_each(|lease| lease.wake());
        self.queue().wanting.extend(wanting);
    }

    /// What these leases have to say now.
    pub(super) fn collect(&self, leases: &[Arc<Lease>], occasion: Occasion) -> Batch {
        let mut batch = Batch { leases: Vec::new(), statements: Vec::new() };
        for lease in leases {
            if occasion == Occasion::Wanted {
                // From here on a new wish queues it again.
                lease.unmark_queued();
            }
            let said = lease.say(occasion, self.calendar.latest());
            let sequence = said.statement.as_ref().map(|statement| statement.sequence);
            let months = said.farewells.iter().map(|farewell| farewell.month).collect();
            batch.statements.extend(said.statement);
            batch.statements.extend(said.farewells);
            batch.leases.push((Arc::clone(lease), sequence, months));
        }
        batch
    }

    /// Hands the store's words to the leases; `None` when it said nothing at all.
    pub(super) fn deliver(
        &self,
        batch: Batch,
        standings: Option<Vec<Option<Standing>>>,
        clock: u64,
    ) {
        let answered = standings.is_some();
        let mut standings = standings.unwrap_or_default().into_iter();
        for (lease, sequence, months) in batch.leases {
            let mut settled = 0;
            if let Some(sequence) = sequence {
                match standings.next().flatten() {
                    Some(standing) => settled += lease.reply(sequence, standing, clock),
                    None => lease.no_reply(answered, clock),
                }
            }
            for month in months {
                if standings.next().flatten().is_some() {
                    settled += lease.said_farewell(month);
                }
            }
            self.health.unsettled.fetch_sub(settled, Ordering::Relaxed);
            lease.wake();
        }
    }

    /// Takes the store's pulse. After another life of it all leases restate what they know, and
    /// those that have something to say are returned.
    pub(super) fn feel(
        &self,
        before: Option<&Pulse>,
        pulse: &Pulse,
        clock: u64,
    ) -> Vec<Arc<Lease>> {
        let settle = pulse.settle.as_millis() as u64;
        let until = if settle > 0 { clock + settle } else { 0 };
        self.health.settling_until.store(until, Ordering::Relaxed);
        if before.is_none_or(|before| before.incarnation == pulse.incarnation) {
            return Vec::new();
        }
        log::warn!("the store was restarted, replaced or emptied: numbers are restated");
        let leases = self.leases.iter().map(|entry| Arc::clone(entry.value()));
        leases.filter(|lease| lease.restate()).collect()
    }

    // --- health ---

    pub(super) fn is_down(&self) -> bool {
        self.health.down.load(Ordering::Relaxed)
    }

    /// Why the store counts as down, if it said anything.
    pub(super) fn store_problem(&self) -> Option<String> {
        lock(&self.health.problem).clone().filter(|_| self.is_down())
    }

    pub(super) fn is_settling(&self, clock: u64) -> bool {
        clock < self.health.settling_until.load(Ordering::Relaxed)
    }

    /// For how long all accounts still settle, in milliseconds.
    pub(super) fn settles_for(&self, clock: u64) -> u64 {
        self.health.settling_until.load(Ordering::Relaxed).saturating_sub(clock)
    }

    /// Takes note of how stating went.
    pub(super) fn note(&self, error: Option<&StoreError>) {
        self.health.refuses.store(error.is_some(), Ordering::Relaxed);
        self.health.commits.fetch_add(u64::from(error.is_none()), Ordering::Relaxed);
        self.note_answer(error);
    }

    pub(super) fn fails_closed(&self) -> bool {
        self.fails_closed.load(Ordering::Relaxed)
    }

    /// Takes note of how many replicas lack what was last stated.
    pub(super) fn note_replicas(&self, missing: usize) {
        let before = self.health.missing_replicas.swap(missing as u64, Ordering::Relaxed);
        match (before, missing) {
            (0, 1..) => log::error!("{missing} of store.wait_replicas do not have what was stated"),
            (1.., 0) => log::warn!("store.wait_replicas have what was stated, or are out of reach"),
            _ => {}
        }
    }

    /// Takes note of how taking the pulse went.
    pub(super) fn note_pulse(&self, error: Option<&StoreError>) {
        self.health.is_silent.store(error.is_some(), Ordering::Relaxed);
        if error.is_some() || !self.health.refuses.load(Ordering::Relaxed) {
            self.note_answer(error);
        }
    }

    fn note_answer(&self, error: Option<&StoreError>) {
        let health = &self.health;
        let Some(error) = error else {
            if health.failures_in_a_row.swap(0, Ordering::Relaxed) > 0 {
                *lock(&health.problem) = None;
            }
            if health.down.swap(false, Ordering::Relaxed) {
                log::warn!("the store answers again");
            }
            return;
        };
        *lock(&health.problem) = Some(error.to_string());
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
