//! Faults of nodes, clocks and the store.

use super::engine::LedgerSnapshot;
use super::run::{RECOVERY_PERIOD_MS, Simulation};
use crate::model::month::Month;
use crate::quota::lease_report::ReportReason;

impl Simulation<'_> {
    /// Crashes a node, as kill -9 does.
    pub(super) fn crash_node(&mut self, at: usize) {
        let node = self.nodes.swap_remove(at);
        self.trace(format_args!("node {} crashes", node.node.id[0]));
        self.late.extend(node.in_flight.as_ref().map(|in_flight| in_flight.message.clone()));
        self.dead.push(node);
        self.start_node();
    }

    /// Stops a node, as SIGTERM does. If the store does not answer, this equals a crash.
    pub(super) fn stop_node(&mut self, at: usize) {
        if self.nodes[at].in_flight.is_none() && self.probe_store(at).is_some() {
            self.send(at, ReportReason::Shutdown);
            if let Some(in_flight) = self.nodes[at].in_flight.take() {
                drop(self.apply(&in_flight.message));
            }
        }
        self.crash_node(at);
    }

    /// Sets a clock wrong: never long enough for the jump to be accepted, and never both clocks of
    /// a node at once.
    pub(super) fn step_clock(&mut self, at: usize) {
        let skew = self.random.pick(&[0, 0, -86_400, -40, 3_600, 40 * 86_400]);
        let all_clocks_right = self.nodes.iter().all(|node| node.skew == 0);
        if self.engine.is_server() && all_clocks_right && self.random.one_in(2) {
            self.trace(format_args!("the server's clock is wrong by {skew} s"));
            self.store_skew = skew;
        } else if self.store_skew == 0 {
            self.nodes[at].skew = skew;
        }
    }

    /// Lets the server lose acknowledged data, or only restart.
    pub(super) fn disturb_store(&mut self) {
        if !self.store_may_lose_data || self.account_recovering_since.len() > 1 {
            return;
        }
        let Some(month) = self.tally.keys().next_back().copied() else { return };
        match self.random.below(4) {
            0 => self.snapshot = self.engine.take_snapshot(&self.account, month),
            1 => self.restart("restarts"),
            2 => self.lose_store_data(month, LedgerSnapshot::new()),
            _ => self.lose_store_data(month, self.snapshot.clone()),
        }
    }

    pub(super) fn restart(&mut self, how: &str) {
        self.trace(format_args!("the store {how}"));
        self.incarnation += 1;
        self.recovering_until = self.now + RECOVERY_PERIOD_MS;
        for at in 0..self.nodes.len() {
            // The connection is lost, and with it every message in flight.
            self.nodes[at].is_healthy = false;
            if let Some(in_flight) = self.nodes[at].in_flight.take() {
                self.fail(at, in_flight.batch);
            }
        }
        self.late.clear();
    }

    pub(super) fn lose_store_data(&mut self, month: Month, snapshot: LedgerSnapshot) {
        if snapshot.iter().any(|(field, _)| field == "claim") && self.snapshot.is_empty() {
            return;
        }
        // The totals that the living nodes know: the highest that one node knows of all, and the
        // sum of what each knows of itself.
        let known: Vec<(u64, u64)> =
            self.nodes.iter().map(|m| m.lease.known_totals(month)).collect();
        let best = known.iter().map(|known| known.0).max().unwrap_or(0);
        let own = known.iter().map(|known| known.1).sum();
        let tally = self.tally.entry(month).or_default();
        tally.uncovered = tally.uncovered.max(tally.net.saturating_sub(best.max(own)));
        self.engine.restore_snapshot(&self.account, month, &snapshot);
        self.engine.end_recovery(&self.account, month);
        self.account_recovering_since.remove(&month);
        self.restart(if snapshot.is_empty() { "loses all rows" } else { "restores older rows" });
        // All living nodes report within the recovery period, as they do every second.
        for at in 0..self.nodes.len() {
            self.nodes[at].cut_off = false;
            self.send_requests(at, ReportReason::Tick);
            if let Some(in_flight) = self.nodes[at].in_flight.take() {
                let grants = self.apply(&in_flight.message);
                self.answer(at, in_flight.batch, grants);
            }
        }
    }
}
