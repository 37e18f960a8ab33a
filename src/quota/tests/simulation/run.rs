//! One simulated run: some nodes, one account, one store, and the faults that hit them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::random::Random;
use super::sabotage::{Sabotage, SabotagedStore};
use super::simulated_store::LedgerSnapshot;
use crate::model::month::Month;
use crate::quota::calendar::Calendar;
use crate::quota::lease::Lease;
use crate::quota::lease_report::ReportReason;
use crate::quota::node::{Node, ReportBatch};
use crate::quota::{Charge, FailurePolicy};
use crate::store::{LeaseReport, MonthlyLimit, Probe, StoreError};

/// The last second of November 2026.
const NOVEMBER_END: i64 = 1_796_083_199;
/// After a data loss the store grants nothing for this long; `RECOVERY_PERIOD` of the Redis store.
pub(super) const RECOVERY_PERIOD_MS: u64 = 3_000;

/// A simulated process run.
pub(super) struct SimulatedNode {
    pub(super) node: Node,
    pub(super) lease: Arc<Lease>,
    /// The index in `Simulation::limits` of the limit that the node applies.
    pub(super) limit_index: usize,
    pub(super) started_at_ms: u64,
    /// The clock of the node's machine is ahead by this many seconds.
    pub(super) clock_skew_seconds: i64,
    /// A clock was wrong when the node started. The node's time may be wrong, but not its month.
    pub(super) started_with_wrong_clock: bool,
    pub(super) is_cut_off: bool,
    pub(super) last_operation_succeeded: bool,
    pub(super) last_probe: Option<Probe>,
    pub(super) is_lease_tracked: bool,
    pub(super) in_flight: Option<InFlight>,
    /// Calls that may still be refunded.
    pub(super) refundable_charges: Vec<Charge>,
    /// Refunded calls that the store may not know of.
    pub(super) unreported_refunds: u64,
    /// The calls of the batch that waits.
    pub(super) waiting_batch: Option<u64>,
    /// A batch waited when the latest report was built.
    pub(super) was_batch_waiting_at_report: bool,
    /// The calls of a batch that the store may have granted, although the node has not spent them.
    pub(super) batch_at_store: u64,
    /// The month and the spendable total for which the store's row was last checked.
    pub(super) last_checked_row: Option<(u16, u64)>,
    pub(super) last_charged_month: Option<Month>,
    /// Calls that the node has admitted, minus refunds.
    pub(super) net_calls_by_month: BTreeMap<Month, u64>,
}

/// Reports in flight, and the batch that waits for the grants.
pub(super) struct InFlight {
    pub(super) batch: ReportBatch,
    pub(super) message: Message,
}

/// Reports as sent over the network.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) node_id: [u8; 16],
    pub(super) month: Month,
    pub(super) recovery_ms_left: u64,
    pub(super) reports: Vec<LeaseReport>,
}

/// Counts of one month over all nodes of the run.
#[derive(Default)]
pub(super) struct Tally {
    /// Admitted, including refunded calls.
    pub(super) gross_calls: u64,
    /// Admitted and not refunded.
    pub(super) net_calls: u64,
    /// Of the net calls: admitted without a lease.
    pub(super) unbacked_calls: u64,
    /// Spent calls that no living node knew when the store lost data, so they may be spent again.
    pub(super) maybe_lost_calls: u64,
}

pub struct Simulation<'e> {
    pub(super) random: Random,
    pub(super) store: &'e mut SabotagedStore,
    pub(super) account: String,
    pub(super) is_verbose: bool,
    pub(super) on_failure: FailurePolicy,
    /// Milliseconds since the run began.
    pub(super) now_ms: u64,
    /// The beginning of the run in Unix seconds.
    pub(super) started_at_unix: i64,
    /// The server's clock is ahead by this many seconds; 0 while the clock of a node is wrong.
    pub(super) store_skew_seconds: i64,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) nodes_started: u64,
    /// Nodes that crashed or stopped.
    pub(super) ended_nodes: Vec<SimulatedNode>,
    /// Messages whose sender no longer waits for the reply. The store may still get them.
    pub(super) late_messages: Vec<Message>,
    pub(super) limits: Vec<MonthlyLimit>,
    pub(super) tallies: BTreeMap<Month, Tally>,
    /// The incarnation of the store.
    pub(super) store_incarnation: u32,
    /// Milliseconds since the run began until which the store recovers for all accounts.
    pub(super) recovering_until_ms: u64,
    pub(super) recovery_start_ms_by_month: BTreeMap<Month, u64>,
    pub(super) store_may_lose_data: bool,
    /// The totals of a month, for a later loss.
    pub(super) snapshot: (Option<Month>, LedgerSnapshot),
}

impl<'e> Simulation<'e> {
    pub fn new(seed: u64, store: &'e mut SabotagedStore, is_verbose: bool) -> Simulation<'e> {
        let mut random = Random(seed);
        let limit = match random.random_below(24) {
            0 => MonthlyLimit::Unlimited,
            1 => MonthlyLimit::Calls(random.pick(&[600, 1_500, super::checks::UNREACHED_LIMIT])),
            _ => {
                MonthlyLimit::Calls(random.pick(&[0, 1, 2, 5, 10, 40, 60, 99, 100, 101, 130, 250]))
            }
        };
        let started_at_unix = match random.one_in(3) {
            true => NOVEMBER_END - random.random_below(60) as i64,
            false => NOVEMBER_END - 864_000,
        };
        let on_failure = if random.one_in(3) { FailurePolicy::Open } else { FailurePolicy::Closed };
        let store_may_lose_data = store.is_redis() && random.one_in(3);
        let mut simulation = Simulation {
            random,
            account: format!("seed-{seed}"),
            store,
            is_verbose,
            on_failure,
            now_ms: 0,
            started_at_unix,
            store_skew_seconds: 0,
            nodes: Vec::new(),
            nodes_started: 0,
            ended_nodes: Vec::new(),
            late_messages: Vec::new(),
            limits: vec![limit],
            tallies: BTreeMap::new(),
            store_incarnation: 0,
            recovering_until_ms: 0,
            recovery_start_ms_by_month: BTreeMap::new(),
            store_may_lose_data,
            snapshot: (None, LedgerSnapshot::new()),
        };
        for _ in 0..=simulation.random.random_below(4) {
            simulation.start_node();
        }
        simulation.trace(format_args!("{limit:?}, {on_failure:?}, loss: {store_may_lose_data}"));
        simulation
    }

    pub(super) fn trace(&self, what: std::fmt::Arguments<'_>) {
        if self.is_verbose {
            println!("{:>7} ms  {what}", self.now_ms);
        }
    }

    /// Runs all events and checks every promise.
    pub fn run(mut self) {
        for _ in 0..40 + self.random.random_below(160) {
            self.run_random_event();
            self.check_invariants();
        }
        self.spend_all_left_without_faults();
        self.check_final_state();
        let months: Vec<Month> = self.tallies.keys().copied().collect();
        for month in months {
            self.store.end_recovery(&self.account, month);
            self.store.restore_snapshot(&self.account, month, &LedgerSnapshot::new());
        }
    }

    pub(super) fn run_random_event(&mut self) {
        let node_index = self.random.random_below(self.nodes.len() as u64) as usize;
        match self.random.random_below(100) {
            0..35 => {
                for _ in 0..=self.random.random_below(12) {
                    self.make_call(node_index);
                }
                if self.random.one_in(6) {
                    self.make_batch(node_index);
                }
            }
            35..41 => self.refund_random_call(node_index),
            41..63 => self.send_reports_as_worker(node_index, ReportReason::CallsNeeded),
            63..70 => self.run_worker_tick(node_index),
            70..82 => self.resolve_in_flight(node_index),
            82..85 => self.deliver_late_message(),
            85..91 => {
                let longest = self.random.pick(&[20, 200, 1_500]);
                let ms = 1 + self.random.random_below(longest);
                self.advance_time(ms);
            }
            91..93 => self.nodes[node_index].is_cut_off = !self.nodes[node_index].is_cut_off,
            93 => self.crash_and_replace_node(node_index),
            94 => self.shut_down_and_replace_node(node_index),
            95 => self.change_limit(),
            96..98 => self.apply_next_limit(node_index),
            98 => self.step_clock(node_index),
            _ => self.disturb_store(),
        }
    }

    pub(super) fn start_node(&mut self) {
        self.nodes_started += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.nodes_started.to_le_bytes());
        let skew = self.draw_start_skew();
        let (now, boottime) = (self.true_now(), self.boottime());
        let (machine_now, store_now) = (now + skew, now + self.store_skew_seconds);
        let (mut known, mut confirming_now) = (self.latest_month(), machine_now);
        if self.store.is_sabotaged_by(Sabotage::TrustAnyClock) {
            known = known.max(Some(Month::containing(machine_now)));
            confirming_now = store_now;
        }
        let calendar = Calendar::new(known, machine_now, boottime);
        if self.store.is_redis() {
            calendar.observe_store_clock(store_now, confirming_now, boottime);
        }
        let node = Node::new(id, calendar, self.on_failure, 1_000_000);
        let limit = self.limits.len() - 1;
        let lease = node.open_lease(&self.account, self.limits[limit]);
        let skews = [skew, self.store_skew_seconds];
        self.trace(format_args!("node {} starts, clocks wrong by {skews:?}", self.nodes_started));
        self.nodes.push(SimulatedNode {
            node,
            lease,
            limit_index: limit,
            started_at_ms: self.now_ms,
            clock_skew_seconds: skew,
            started_with_wrong_clock: (skew, self.store_skew_seconds) != (0, 0),
            is_cut_off: false,
            last_operation_succeeded: false,
            last_probe: None,
            is_lease_tracked: false,
            in_flight: None,
            refundable_charges: Vec::new(),
            unreported_refunds: 0,
            waiting_batch: None,
            was_batch_waiting_at_report: false,
            batch_at_store: 0,
            last_checked_row: None,
            last_charged_month: None,
            net_calls_by_month: BTreeMap::new(),
        });
    }

    /// Draws how many seconds a starting node's clock is ahead. If the store has no clock, it draws
    /// a skew that the node notices: nodes accept a clock that shows the current or next month.
    pub(super) fn draw_start_skew(&mut self) -> i64 {
        if !self.random.one_in(4) || self.store_skew_seconds != 0 || self.latest_month().is_none() {
            return 0;
        }
        match self.store.is_redis() {
            true => self.random.pick(&[-86_400, -40, 3_600, 40 * 86_400]),
            false => self.random.pick(&[-86_400, 70 * 86_400, 4_000 * 86_400]),
        }
    }

    pub(super) fn latest_month(&self) -> Option<Month> {
        self.nodes.iter().map(|node| node.node.calendar.latest_month()).max()
    }

    /// The highest limit that some node may still apply.
    pub(super) fn highest_limit_in_force(&self) -> Option<u64> {
        let oldest = self.nodes.iter().map(|node| node.limit_index).min().unwrap_or(0);
        self.limits[oldest..].iter().try_fold(0, |highest, limit| match limit {
            MonthlyLimit::Calls(calls) => Some(highest.max(*calls)),
            MonthlyLimit::Unlimited => None,
        })
    }

    /// How many calls above `limit` may be admitted. If a limit was raised and lowered again, nodes
    /// that saw the raise may have spent it; the other nodes may still spend the calls they hold.
    pub(super) fn allowed_overrun(&self, limit: u64) -> u64 {
        let raised =
            self.limits.iter().any(|other| other.calls().is_none_or(|calls| calls > limit));
        let held = self.nodes.iter().map(|node| {
            let limit = self.limits[node.limit_index].calls();
            expected_max_held_calls(limit).max(node.batch_at_store)
        });
        if raised { held.sum() } else { 0 }
    }

    pub(super) fn advance_time(&mut self, ms: u64) {
        self.now_ms += ms;
        let is_over = |since: &u64| self.now_ms - since >= RECOVERY_PERIOD_MS;
        let ended: Vec<Month> = self
            .recovery_start_ms_by_month
            .iter()
            .filter(|(_, since)| is_over(since))
            .map(|(m, _)| *m)
            .collect();
        for month in ended {
            self.recovery_start_ms_by_month.remove(&month);
            self.store.end_recovery(&self.account, month);
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

    pub(super) fn apply_next_limit(&mut self, node_index: usize) {
        let node = &mut self.nodes[node_index];
        if node.limit_index + 1 < self.limits.len() {
            node.limit_index += 1;
            node.node.open_lease(&self.account, self.limits[node.limit_index]);
        }
    }

    pub(super) fn true_now(&self) -> i64 {
        self.started_at_unix + self.boottime()
    }

    pub(super) fn boottime(&self) -> i64 {
        (self.now_ms / 1_000) as i64
    }

    pub(super) fn uptime_ms(&self, node_index: usize) -> u64 {
        self.now_ms - self.nodes[node_index].started_at_ms + 1
    }
}

/// The most unspent calls that one process may hold or request: computed here independently.
pub(super) fn expected_max_held_calls(limit: Option<u64>) -> u64 {
    limit.map_or(32_768, |limit| (limit / 100).min(64.max(limit / 10_000)).clamp(1, 4_096))
}

pub(super) fn network_error() -> StoreError {
    StoreError::Conflict("the network".to_owned())
}
