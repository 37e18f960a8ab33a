//! One simulated run: some nodes, one account, one store, and the faults that hit them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::engine::LedgerSnapshot;
use super::random::Random;
use super::sabotage::{Sabotage, SabotagedStore};
use crate::model::month::Month;
use crate::quota::calendar::Calendar;
use crate::quota::lease::{Charge, Lease};
use crate::quota::lease_report::ReportReason;
use crate::quota::node::{Batch, ChargeProgress, Node};
use crate::quota::{Denial, FailurePolicy};
use crate::store::{LeaseReport, MonthlyLimit, Probe, StoreError};

/// The last second of November 2026.
const END: i64 = 1_796_083_199;
/// As in `report_lease.lua`: after a data loss the store grants nothing for this long.
pub(super) const RECOVERY_PERIOD_MS: u64 = 3_000;

/// A simulated process run.
pub(super) struct SimulatedNode {
    pub(super) node: Node,
    pub(super) lease: Arc<Lease>,
    /// The version of the limit that the node knows.
    pub(super) limit: usize,
    pub(super) started_at: u64,
    /// Its clock is wrong by this many seconds.
    pub(super) skew: i64,
    /// A clock was wrong when the node started. Its time may be wrong then; its month must not be.
    pub(super) started_with_wrong_clock: bool,
    pub(super) cut_off: bool,
    pub(super) is_healthy: bool,
    pub(super) last_probe: Option<Probe>,
    pub(super) is_active: bool,
    pub(super) in_flight: Option<InFlight>,
    /// Calls that may still be refunded.
    pub(super) refundable: Vec<Charge>,
    /// Refunded calls that the store may not know of.
    pub(super) refunded_unreported: u64,
    /// The month and the spendable total for which the store's row was last checked.
    pub(super) known_row: Option<(u16, u64)>,
    pub(super) last_month: Option<Month>,
    /// Calls that it has admitted, minus refunds.
    pub(super) admitted: BTreeMap<Month, u64>,
}

/// Reports in flight, and the batch that waits for the grants.
pub(super) struct InFlight {
    pub(super) batch: Batch,
    pub(super) message: Message,
}

/// Reports as sent over the network.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) node: [u8; 16],
    pub(super) month: Month,
    pub(super) recovery_ms: u64,
    pub(super) reports: Vec<LeaseReport>,
}

/// Counts of one month over all nodes of the run.
#[derive(Default)]
pub(super) struct Tally {
    /// Admitted, including refunded calls.
    pub(super) gross: u64,
    /// Admitted and not refunded.
    pub(super) net: u64,
    /// Of the net calls: admitted without a lease.
    pub(super) unbacked: u64,
    /// Calls that a data loss may cost: spent, but known to no living node.
    pub(super) uncovered: u64,
}

pub struct Simulation<'e> {
    pub(super) random: Random,
    pub(super) engine: &'e mut SabotagedStore,
    pub(super) account: String,
    pub(super) is_verbose: bool,
    pub(super) on_failure: FailurePolicy,
    /// Milliseconds since the run began, and its start in Unix seconds.
    pub(super) now: u64,
    pub(super) started_at_unix: i64,
    /// The server's clock is wrong by this many seconds; never while the clock of a node is wrong.
    pub(super) store_skew: i64,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) nodes_started: u64,
    /// Nodes that crashed, without final reports.
    pub(super) dead: Vec<SimulatedNode>,
    /// Messages whose sender no longer waits. They may still arrive.
    pub(super) late: Vec<Message>,
    pub(super) limits: Vec<MonthlyLimit>,
    pub(super) tally: BTreeMap<Month, Tally>,
    /// The incarnation of the store, and until when it recovers for all accounts.
    pub(super) incarnation: u32,
    pub(super) recovering_until: u64,
    pub(super) account_recovering_since: BTreeMap<Month, u64>,
    pub(super) store_may_lose_data: bool,
    pub(super) snapshot: LedgerSnapshot,
}

impl<'e> Simulation<'e> {
    pub fn new(seed: u64, engine: &'e mut SabotagedStore, is_verbose: bool) -> Simulation<'e> {
        let mut random = Random(seed);
        let limit = match random.below(24) {
            0 => MonthlyLimit::Unlimited,
            1 => MonthlyLimit::Calls(random.pick(&[600, 1_500])),
            _ => {
                MonthlyLimit::Calls(random.pick(&[0, 1, 2, 5, 10, 40, 60, 99, 100, 101, 130, 250]))
            }
        };
        let started_at_unix = match random.one_in(3) {
            true => END - random.below(60) as i64,
            false => END - 864_000,
        };
        let on_failure = if random.one_in(3) { FailurePolicy::Open } else { FailurePolicy::Closed };
        let store_may_lose_data = engine.is_server() && random.one_in(3);
        let mut simulation = Simulation {
            random,
            account: format!("seed-{seed}"),
            engine,
            is_verbose,
            on_failure,
            now: 0,
            started_at_unix,
            store_skew: 0,
            nodes: Vec::new(),
            nodes_started: 0,
            dead: Vec::new(),
            late: Vec::new(),
            limits: vec![limit],
            tally: BTreeMap::new(),
            incarnation: 0,
            recovering_until: 0,
            account_recovering_since: BTreeMap::new(),
            store_may_lose_data,
            snapshot: LedgerSnapshot::new(),
        };
        for _ in 0..=simulation.random.below(4) {
            simulation.start_node();
        }
        simulation.trace(format_args!("{limit:?}, {on_failure:?}, loss: {store_may_lose_data}"));
        simulation
    }

    pub(super) fn trace(&self, what: std::fmt::Arguments<'_>) {
        if self.is_verbose {
            println!("{:>7} ms  {what}", self.now);
        }
    }

    /// Runs all events and checks every promise.
    pub fn run(mut self) {
        for _ in 0..40 + self.random.below(160) {
            self.run_random_event();
            self.check_invariants();
        }
        self.quiesce();
        self.check_final_state();
        let months: Vec<Month> = self.tally.keys().copied().collect();
        for month in months {
            self.engine.end_recovery(&self.account, month);
            self.engine.restore_snapshot(&self.account, month, &LedgerSnapshot::new());
        }
    }

    // --- events ---

    pub(super) fn run_random_event(&mut self) {
        let at = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(100) {
            0..35 => {
                for _ in 0..=self.random.below(12) {
                    self.call(at);
                }
            }
            35..41 => self.refund(at),
            41..63 => self.send_requests(at, ReportReason::CallsNeeded),
            63..70 => self.tick(at),
            70..82 => self.resolve_in_flight(at),
            82..85 => self.deliver_late_message(),
            85..91 => {
                let longest = self.random.pick(&[20, 200, 1_500]);
                let ms = 1 + self.random.below(longest);
                self.advance_time(ms);
            }
            91..93 => self.nodes[at].cut_off = !self.nodes[at].cut_off,
            93 => self.crash_node(at),
            94 => self.stop_node(at),
            95 => self.change_limit(),
            96..98 => self.apply_next_limit(at),
            98 => self.step_clock(at),
            _ => self.disturb_store(),
        }
    }

    pub(super) fn start_node(&mut self) {
        self.nodes_started += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.nodes_started.to_le_bytes());
        let skew = self.skew_at_start();
        let (now, boottime) = (self.true_now(), self.boottime());
        let (machine_now, store_now) = (now + skew, now + self.store_skew);
        let (mut known, mut confirming_now) = (self.latest_month(), machine_now);
        if self.engine.is_sabotaged_by(Sabotage::TrustAnyClock) {
            known = known.max(Some(Month::containing(machine_now)));
            confirming_now = store_now;
        }
        let calendar = Calendar::new(known, machine_now, boottime);
        if self.engine.is_server() {
            calendar.observe_store_clock(store_now, confirming_now, boottime);
        }
        let node = Node::new(id, calendar, self.on_failure, 1_000_000);
        let limit = self.limits.len() - 1;
        let lease = node.lease(&self.account, self.limits[limit]);
        let skews = [skew, self.store_skew];
        self.trace(format_args!("node {} starts, clocks wrong by {skews:?}", self.nodes_started));
        self.nodes.push(SimulatedNode {
            node,
            lease,
            limit,
            started_at: self.now,
            skew,
            started_with_wrong_clock: (skew, self.store_skew) != (0, 0),
            cut_off: false,
            is_healthy: false,
            last_probe: None,
            is_active: false,
            in_flight: None,
            refundable: Vec::new(),
            refunded_unreported: 0,
            known_row: None,
            last_month: None,
            admitted: BTreeMap::new(),
        });
    }

    /// A node may start with a wrong clock. If the store has no clock, the skew is one that the
    /// node can detect: it would accept a clock that is less than a month ahead, or behind within
    /// the month.
    pub(super) fn skew_at_start(&mut self) -> i64 {
        if !self.random.one_in(4) || self.store_skew != 0 || self.latest_month().is_none() {
            return 0;
        }
        match self.engine.is_server() {
            true => self.random.pick(&[-86_400, -40, 3_600, 40 * 86_400]),
            false => self.random.pick(&[-86_400, 70 * 86_400, 4_000 * 86_400]),
        }
    }

    pub(super) fn latest_month(&self) -> Option<Month> {
        self.nodes.iter().map(|node| node.node.calendar.latest_month()).max()
    }

    pub(super) fn call(&mut self, at: usize) {
        let (boottime, uptime_ms) = (self.boottime(), self.uptime_ms(at));
        let (now, store_skew) = (self.true_now(), self.store_skew);
        let node = &mut self.nodes[at];
        let believed = node.node.calendar.now(boottime);
        // Clocks may differ by 5 s and still agree; 6 s allows for rounding.
        let is_implausible = (believed - now).abs() > 6 && !node.started_with_wrong_clock;
        let skew = node.skew;
        assert!(!is_implausible, "{believed} is believed at {now}, skews {skew} {store_skew}");
        let month = node.node.calendar.month_at(believed, || boottime);
        let progress = match node.node.charge(&node.lease, month, uptime_ms) {
            ChargeProgress::Wait if self.random.one_in(6) => {
                let store_hung = self.random.one_in(4);
                ChargeProgress::Done(node.node.charge_after_timeout(&node.lease, month, store_hung))
            }
            progress => progress,
        };
        match progress {
            ChargeProgress::Done(Ok(charge)) => self.admit(at, charge),
            ChargeProgress::Done(Err(Denial::Exhausted | Denial::Store)) | ChargeProgress::Wait => {
            }
        }
    }

    pub(super) fn admit(&mut self, at: usize, charge: Charge) {
        let (month, unbacked) = (charge.month(), charge.is_unbacked);
        let node = &mut self.nodes[at];
        assert!(node.last_month <= Some(month), "a past month began again");
        node.last_month = Some(month);
        *node.admitted.entry(month).or_default() += 1;
        if self.random.one_in(4) {
            node.refundable.push(charge);
        }
        // A wrong clock starts no month early.
        assert!(month <= Month::containing(self.true_now() + 6), "{month} has not begun");
        let limit = self.limit_in_force().map(|limit| limit + self.slack(limit));
        let tally = self.tally.entry(month).or_default();
        tally.gross += 1;
        tally.net += 1;
        tally.unbacked += u64::from(unbacked);
        let max_admitted = limit.map_or(u64::MAX, |limit| limit + tally.unbacked + tally.uncovered);
        let net = tally.net;
        assert!(unbacked || net <= max_admitted, "{net} admitted, at most {max_admitted} allowed");
    }

    /// The highest limit that some node may still apply.
    pub(super) fn limit_in_force(&self) -> Option<u64> {
        let oldest = self.nodes.iter().map(|node| node.limit).min().unwrap_or(0);
        self.limits[oldest..].iter().try_fold(0, |highest, limit| match limit {
            MonthlyLimit::Calls(calls) => Some(highest.max(*calls)),
            MonthlyLimit::Unlimited => None,
        })
    }

    /// If a limit is raised and lowered again, nodes that saw the raise may have spent it before
    /// the others saw either change. The others may still spend the calls that they hold.
    pub(super) fn slack(&self, limit: u64) -> u64 {
        let raised =
            self.limits.iter().any(|other| calls_allowed(*other).is_none_or(|calls| calls > limit));
        let held = |node: &SimulatedNode| max_held(calls_allowed(self.limits[node.limit]));
        if raised { self.nodes.iter().map(held).sum() } else { 0 }
    }

    pub(super) fn refund(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.refundable.is_empty() {
            return;
        }
        let charge =
            node.refundable.swap_remove(self.random.below(node.refundable.len() as u64) as usize);
        let (month, unbacked) = (charge.month(), charge.is_unbacked);
        let row = node.lease.exposure().3;
        if node.node.refund(&node.lease, charge) {
            // A refunded call that the lease can't hold goes to the store, once it is reported.
            node.refunded_unreported += row - node.lease.exposure().3 + u64::from(unbacked);
            *node.admitted.entry(month).or_default() -= 1;
            let tally = self.tally.entry(month).or_default();
            tally.net -= 1;
            tally.unbacked -= u64::from(unbacked);
        }
    }

    pub(super) fn advance_time(&mut self, ms: u64) {
        self.now += ms;
        let is_over = |since: &u64| self.now - since >= RECOVERY_PERIOD_MS;
        let ended: Vec<Month> = self
            .account_recovering_since
            .iter()
            .filter(|(_, since)| is_over(since))
            .map(|(m, _)| *m)
            .collect();
        for month in ended {
            self.account_recovering_since.remove(&month);
            self.engine.end_recovery(&self.account, month);
        }
    }

    pub(super) fn change_limit(&mut self) {
        let limit = match self.random.one_in(8) {
            true => MonthlyLimit::Unlimited,
            false => MonthlyLimit::Calls(self.random.pick(&[0, 1, 9, 50, 100, 130, 200, 350])),
        };
        self.trace(format_args!("the limit becomes {limit:?}"));
        self.limits.push(limit);
    }

    pub(super) fn apply_next_limit(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.limit + 1 < self.limits.len() {
            node.limit += 1;
            node.node.lease(&self.account, self.limits[node.limit]);
        }
    }

    // --- time ---

    pub(super) fn true_now(&self) -> i64 {
        self.started_at_unix + self.boottime()
    }

    pub(super) fn boottime(&self) -> i64 {
        (self.now / 1_000) as i64
    }

    pub(super) fn uptime_ms(&self, at: usize) -> u64 {
        self.now - self.nodes[at].started_at + 1
    }
}

pub(super) fn calls_allowed(limit: MonthlyLimit) -> Option<u64> {
    match limit {
        MonthlyLimit::Calls(calls) => Some(calls),
        MonthlyLimit::Unlimited => None,
    }
}

/// The most unspent calls that one process holds or requests, by the contract.
pub(super) fn max_held(limit: Option<u64>) -> u64 {
    limit.map_or(64, |limit| (limit / 100).clamp(1, 64))
}

pub(super) fn failure() -> StoreError {
    StoreError::Conflict("the network".to_owned())
}
