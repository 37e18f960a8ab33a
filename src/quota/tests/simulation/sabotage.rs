//! Deliberate faults, each of which breaks one rule of the ledger. The simulation must notice each.
//!
//! A fault acts between the shipped node and the shipped store, so the same fault works with SQLite
//! and Redis. The shipped code is not changed.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::run::Simulation;
use super::simulated_store::{RedisServer, SimulatedStore};
use crate::model::month::Month;
use crate::quota::lease::Lease;
use crate::store::{LeaseReport, ReportBatchContext, ReportOutcome, StoreError};

/// The simulation must notice each fault with one of this many seeds. The highest seed that a fault
/// has needed so far is 35.
const MAX_SEEDS: u64 = 1_000;

/// A deliberate fault, and the rule of the ledger that it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// All process runs report under one id.
    ShareNodeId,
    /// Each report gets the newest number when it arrives, so that an older report can undo a newer
    /// one.
    RewriteSequence,
    /// A report adds calls to the leased total in the store, where it should name the total.
    AddDifference,
    /// Calls that are returned to the store stay spendable until the store has replied.
    ReturnAfterReply,
    /// Calls are spent before the store has granted them.
    SpendBeforeGrant,
    /// A node that starts believes any clock, however far ahead it is.
    TrustAnyClock,
}

/// The simulated store, with at most one fault between it and the nodes.
pub struct SabotagedStore {
    store: SimulatedStore,
    sabotage: Option<Sabotage>,
    /// The sequence that was last written for an account, a month and a node.
    last_written_sequences: HashMap<(String, Month, [u8; 16]), u64>,
}

impl SabotagedStore {
    pub fn new(store: SimulatedStore, sabotage: Option<Sabotage>) -> SabotagedStore {
        SabotagedStore { store, sabotage, last_written_sequences: HashMap::new() }
    }

    pub fn is_sabotaged_by(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    /// Alters the reports before the store gets them.
    pub fn report_leases(
        &mut self,
        context: ReportBatchContext<'_>,
        reports: &[LeaseReport],
    ) -> Result<Vec<ReportOutcome>, StoreError> {
        let node = self.reported_node_id(context.node_id);
        let reports: Vec<LeaseReport> =
            reports.iter().map(|report| self.alter_report(report.clone(), &node)).collect();
        self.store.report_leases(ReportBatchContext { node_id: &node, ..context }, &reports)
    }

    /// The calls that one node has leased.
    pub fn leased_by_node(&mut self, account: &str, month: Month, node: &[u8; 16]) -> u64 {
        let node = self.reported_node_id(node);
        self.store.leased_by_node(account, month, &node)
    }

    fn reported_node_id(&self, node: &[u8; 16]) -> [u8; 16] {
        if self.is_sabotaged_by(Sabotage::ShareNodeId) { [7; 16] } else { *node }
    }

    fn alter_report(&mut self, mut report: LeaseReport, node: &[u8; 16]) -> LeaseReport {
        match self.sabotage {
            Some(Sabotage::RewriteSequence) => {
                let key = (report.account.clone(), report.month, *node);
                let last = self.last_written_sequences.entry(key).or_default();
                *last = report.sequence.max(*last + 1);
                report.sequence = *last;
            }
            Some(Sabotage::AddDifference) => {
                let own = self.store.leased_by_node(&report.account, report.month, node);
                report.target = own + (report.target - report.floor);
            }
            _ => {}
        }
        report
    }

    /// Breaks the order of steps once a node has made a report. The lease held `held` calls before.
    pub fn sabotage_after_report(&self, lease: &Lease, held: u64) {
        match self.sabotage {
            Some(Sabotage::ReturnAfterReply) => {
                lease.change_accounting(|accounting, atomic_lease| {
                    let removed = held.saturating_sub(atomic_lease.load().held());
                    accounting.make_returned_calls_spendable(atomic_lease, removed);
                })
            }
            Some(Sabotage::SpendBeforeGrant) => {
                lease.change_accounting(|accounting, atomic_lease| {
                    accounting.make_ungranted_calls_spendable(atomic_lease)
                });
            }
            _ => {}
        }
    }

    /// Breaks the order of steps before a node applies the store's reply.
    pub fn sabotage_before_reply(&self, lease: &Lease) {
        if self.is_sabotaged_by(Sabotage::ReturnAfterReply) {
            lease.change_accounting(|accounting, atomic_lease| {
                accounting.withdraw_returned_calls(atomic_lease)
            });
        }
    }
}

impl Deref for SabotagedStore {
    type Target = SimulatedStore;

    fn deref(&self) -> &SimulatedStore {
        &self.store
    }
}

impl DerefMut for SabotagedStore {
    fn deref_mut(&mut self) -> &mut SimulatedStore {
        &mut self.store
    }
}

/// Runs the seeds until a run breaks a promise. Returns that seed and the message of the failed
/// check; `None` if no run breaks a promise.
fn find_broken_run(
    store: SimulatedStore,
    sabotage: Option<Sabotage>,
    mut seeds: Range<u64>,
) -> Option<(u64, String)> {
    let mut store = SabotagedStore::new(store, sabotage);
    seeds.find_map(|seed| {
        let run = AssertUnwindSafe(|| Simulation::new(seed, &mut store, false).run());
        let panic = catch_unwind(run).err()?;
        // The message of a broken promise contains values, so it is a `String`. A panic with a
        // fixed text, such as an overflow, comes from the fault itself and proves nothing.
        let promise = panic.downcast::<String>().expect("a broken promise");
        Some((seed, *promise))
    })
}

/// Asserts that a run with the fault breaks a promise, and that the same runs without the fault
/// break none.
#[track_caller]
fn assert_is_noticed(sabotage: Sabotage) {
    let assert_with = |name: &str, open_store: &dyn Fn() -> SimulatedStore| {
        let broken = find_broken_run(open_store(), Some(sabotage), 0..MAX_SEEDS);
        let (seed, promise) = broken.unwrap_or_else(|| panic!("{name}: {sabotage:?} unnoticed"));
        println!("{name}: {sabotage:?} noticed with seed {seed}: {promise}");
        // In a new store, because the broken run has left its totals in the other one.
        let broken = find_broken_run(open_store(), None, 0..seed + 1);
        assert_eq!(broken, None, "{name}: broken without the fault");
    };
    assert_with("SQLite", &SimulatedStore::sqlite);
    let server = RedisServer::start();
    assert_with("Redis", &|| {
        server.try_run(&["FLUSHALL"]).unwrap();
        SimulatedStore::redis(&server)
    });
}

#[test]
fn the_simulation_notices_a_shared_node_id() {
    assert_is_noticed(Sabotage::ShareNodeId);
}

#[test]
fn the_simulation_notices_an_older_report_that_undoes_a_newer_one() {
    assert_is_noticed(Sabotage::RewriteSequence);
}

#[test]
fn the_simulation_notices_a_report_of_differences() {
    assert_is_noticed(Sabotage::AddDifference);
}

#[test]
fn the_simulation_notices_returned_calls_that_stay_spendable() {
    assert_is_noticed(Sabotage::ReturnAfterReply);
}

#[test]
fn the_simulation_notices_calls_spent_before_they_are_granted() {
    assert_is_noticed(Sabotage::SpendBeforeGrant);
}

#[test]
fn the_simulation_notices_a_node_that_trusts_any_clock_at_its_start() {
    assert_is_noticed(Sabotage::TrustAnyClock);
}
