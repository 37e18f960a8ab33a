//! Faults of nodes, clocks and the store.

use super::run::{RECOVERY_PERIOD_MS, SimulatedNode, Simulation};
use super::simulated_store::LedgerSnapshot;
use crate::model::month::Month;
use crate::quota::lease_report::ReportReason;

impl Simulation<'_> {
    /// Crashes a node, as kill -9 does, and starts a new node in its place.
    pub(super) fn crash_and_replace_node(&mut self, node_index: usize) {
        let node = self.nodes.swap_remove(node_index);
        self.trace(format_args!("node {} crashes", node.node.id[0]));
        self.late_messages
            .extend(node.in_flight.as_ref().map(|in_flight| in_flight.message.clone()));
        self.ended_nodes.push(node);
        self.start_node();
    }

    /// Shuts a node down as SIGTERM does, and starts a new node in its place. The old node sends
    /// its last reports, unless a message is in flight or the store does not answer.
    pub(super) fn shut_down_and_replace_node(&mut self, node_index: usize) {
        if self.nodes[node_index].in_flight.is_none()
            && self.probe_and_check_if_totals_due(node_index).is_some()
        {
            self.send_reports(node_index, ReportReason::Shutdown);
            if let Some(in_flight) = self.nodes[node_index].in_flight.take() {
                drop(self.apply_at_store(&in_flight.message));
            }
        }
        self.crash_and_replace_node(node_index);
    }

    /// Sets a clock wrong, or right again: the server's or a node's, never both at once. A run is
    /// too short for a jump to be accepted.
    pub(super) fn step_clock(&mut self, node_index: usize) {
        let skew = self.random.pick(&[0, 0, -86_400, -40, 3_600, 40 * 86_400]);
        let all_clocks_right = self.nodes.iter().all(|node| node.clock_skew_seconds == 0);
        if self.store.is_redis() && all_clocks_right && self.random.one_in(2) {
            self.trace(format_args!("the server's clock is wrong by {skew} s"));
            self.store_skew_seconds = skew;
        } else if self.store_skew_seconds == 0 {
            self.nodes[node_index].clock_skew_seconds = skew;
        }
    }

    /// Restarts the server, with or without a loss of data, or takes the snapshot for a later loss.
    pub(super) fn disturb_store(&mut self) {
        if !self.store_may_lose_data || self.recovery_start_ms_by_month.len() > 1 {
            return;
        }
        let Some(month) = self.tallies.keys().next_back().copied() else { return };
        match self.random.random_below(4) {
            0 => self.snapshot = (Some(month), self.store.take_snapshot(&self.account, month)),
            1 => self.restart_store("restarts"),
            2 => self.lose_store_data(month, LedgerSnapshot::new()),
            _ => {
                // An older snapshot has no totals of a later month.
                let (of_month, snapshot) = self.snapshot.clone();
                let is_of_month = of_month == Some(month);
                let kept = if is_of_month { snapshot } else { LedgerSnapshot::new() };
                self.lose_store_data(month, kept);
            }
        }
    }

    pub(super) fn restart_store(&mut self, how: &str) {
        self.trace(format_args!("the store {how}"));
        self.store_incarnation += 1;
        self.recovering_until_ms = self.now_ms + RECOVERY_PERIOD_MS;
        for at in 0..self.nodes.len() {
            // The connection is lost, and with it every message in flight.
            self.nodes[at].last_operation_succeeded = false;
            if let Some(in_flight) = self.nodes[at].in_flight.take() {
                self.fail_exchange(at, in_flight.batch);
            }
        }
        self.late_messages.clear();
    }

    /// Replaces the account's totals of the month by an earlier snapshot; an empty snapshot deletes
    /// them. Then the nodes report again.
    pub(super) fn lose_store_data(&mut self, month: Month, snapshot: LedgerSnapshot) {
        // After the loss, the living nodes can restore the highest total over all nodes that any of
        // them knows, or the sum of their own totals. Calls above the larger of the two may be
        // lost.
        // A call that a node holds stands for no spent call: the node may return it, and then the
        // store grants it again.
        let without_held = |node: &SimulatedNode| {
            let (all, own) = node.lease.recoverable_leased_totals(month);
            let held = node.lease.change_accounting(|_, lease| lease.load().held()).min(own);
            (all - held, own - held)
        };
        let known: Vec<(u64, u64)> = self.nodes.iter().map(without_held).collect();
        let best = known.iter().map(|known| known.0).max().unwrap_or(0);
        let own = known.iter().map(|known| known.1).sum();
        let tally = self.tallies.entry(month).or_default();
        tally.maybe_lost_calls =
            tally.maybe_lost_calls.max(tally.net_calls.saturating_sub(best.max(own)));
        self.store.restore_snapshot(&self.account, month, &snapshot);
        self.store.end_recovery(&self.account, month);
        self.recovery_start_ms_by_month.remove(&month);
        self.restart_store(if snapshot.is_empty() {
            "loses all rows"
        } else {
            "restores older rows"
        });
        // All living nodes report within the recovery period, as they do every second.
        for at in 0..self.nodes.len() {
            self.nodes[at].is_cut_off = false;
            self.send_reports_as_worker(at, ReportReason::Tick);
            if let Some(in_flight) = self.nodes[at].in_flight.take() {
                let grants = self.apply_at_store(&in_flight.message);
                self.deliver_outcome(at, in_flight.batch, grants);
            }
        }
    }
}
