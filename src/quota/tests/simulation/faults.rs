//! What befalls nodes, clocks and the store.

use super::engine::LedgerSnapshot;
use super::run::{RESTATEMENT, Simulation};
use crate::model::month::Month;
use crate::quota::lease_report::ReportReason;

impl Simulation<'_> {
    /// As kill -9 does.
    pub(super) fn crash_node(&mut self, at: usize) {
        let member = self.nodes.swap_remove(at);
        self.trace(format_args!("node {} dies", member.node.id[0]));
        self.late.extend(member.in_flight.as_ref().map(|flight| flight.letter.clone()));
        self.dead.push(member);
        self.start_node();
    }

    /// As SIGTERM does; without an answer it is as good as a crash.
    pub(super) fn stop_node(&mut self, at: usize) {
        if self.nodes[at].in_flight.is_none() && self.probe_store(at).is_some() {
            self.send(at, ReportReason::Shutdown);
            if let Some(flight) = self.nodes[at].in_flight.take() {
                drop(self.apply(&flight.letter));
            }
        }
        self.crash_node(at);
    }

    /// Never for as long as it takes to be believed, and never both clocks of a node at once.
    pub(super) fn step_clock(&mut self, at: usize) {
        let skew = self.random.pick(&[0, 0, -86_400, -40, 3_600, 40 * 86_400]);
        let are_right = self.nodes.iter().all(|member| member.skew == 0);
        if self.engine.is_server() && are_right && self.random.one_in(2) {
            self.trace(format_args!("the server's clock is wrong by {skew} s"));
            self.store_skew = skew;
        } else if self.store_skew == 0 {
            self.nodes[at].skew = skew;
        }
    }

    /// The server loses what it acknowledged, or only restarts.
    pub(super) fn disturb_store(&mut self) {
        if !self.store_may_lose_data || self.account_recovering_since.len() > 1 {
            return;
        }
        let Some(month) = self.tally.keys().next_back().copied() else { return };
        match self.random.below(4) {
            0 => self.copy = self.engine.take_snapshot(&self.account, month),
            1 => self.restart("restarts"),
            2 => self.lose_store_data(month, LedgerSnapshot::new()),
            _ => self.lose_store_data(month, self.copy.clone()),
        }
    }

    pub(super) fn restart(&mut self, how: &str) {
        self.trace(format_args!("the store {how}"));
        self.incarnation += 1;
        self.recovering_until = self.now + RESTATEMENT;
        for at in 0..self.nodes.len() {
            // The connection is gone, and with it what was under way.
            self.nodes[at].is_healthy = false;
            if let Some(flight) = self.nodes[at].in_flight.take() {
                self.fail(at, flight.batch);
            }
        }
        self.late.clear();
    }

    pub(super) fn lose_store_data(&mut self, month: Month, copy: LedgerSnapshot) {
        if copy.iter().any(|(field, _)| field == "claim") && self.copy.is_empty() {
            return;
        }
        // What is spent or may be, and what the nodes that live know of it, together or each.
        let known: Vec<(u64, u64)> =
            self.nodes.iter().map(|m| m.lease.known_totals(month)).collect();
        let best = known.iter().map(|known| known.0).max().unwrap_or(0);
        let own = known.iter().map(|known| known.1).sum();
        let tally = self.tally.entry(month).or_default();
        tally.uncovered = tally.uncovered.max(tally.net.saturating_sub(best.max(own)));
        self.engine.restore_snapshot(&self.account, month, &copy);
        self.engine.end_recovery(&self.account, month);
        self.account_recovering_since.remove(&month);
        self.restart(if copy.is_empty() { "is emptied" } else { "goes back" });
        // All who live speak within the restatement, as they do every second.
        for at in 0..self.nodes.len() {
            self.nodes[at].cut_off = false;
            self.speak(at, ReportReason::Tick);
            if let Some(flight) = self.nodes[at].in_flight.take() {
                let standings = self.apply(&flight.letter);
                self.answer(at, flight.batch, standings);
            }
        }
    }
}
