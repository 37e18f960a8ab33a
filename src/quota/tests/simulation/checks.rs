//! The promises, checked after each event and at the end of a run.

use super::run::{RECOVERY_PERIOD_MS, Simulation, calls_allowed, max_held};
use crate::model::month::Month;
use crate::quota::lease_report::ReportReason;
use crate::store::MonthlyLimit;

impl Simulation<'_> {
    pub(super) fn check_invariants(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let (month, held, limits, row) = node.lease.exposure();
            let max_allowed = limits.iter().map(|limit| max_held(*limit)).max().unwrap_or(0);
            assert!(held <= max_allowed, "{held} held or requested, at most {max_allowed} allowed");
            // The row is read only if it may have changed since the last check.
            let known = Some((month, row)) == node.known_row;
            if let Some(month) = Month::from_number(month).filter(|_| month > 0 && !known) {
                let stored = self.engine.row(&self.account, month, &node.node.id);
                let node = &mut self.nodes[at];
                node.known_row = Some((month.number(), row));
                assert!(
                    self.store_may_lose_data || row <= stored,
                    "{row} may be spent, the store knows {stored}"
                );
            }
        }
    }

    /// Ends all faults, delivers every report and grant, and spends the rest of the limit.
    pub(super) fn quiesce(&mut self) {
        self.store_skew = 0;
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            (node.cut_off, node.skew) = (false, 0);
        }
        while self.nodes.iter().any(|node| node.limit + 1 < self.limits.len()) {
            (0..self.nodes.len()).for_each(|at| self.apply_next_limit(at));
        }
        self.advance_time(2 * RECOVERY_PERIOD_MS);
        let mut denied_rounds = 0;
        for _ in 0..400 {
            let before = self.gross();
            for at in 0..self.nodes.len() {
                for _ in 0..200 {
                    let gross_before = self.gross();
                    self.call(at);
                    self.exchange_until_idle(at, ReportReason::CallsNeeded);
                    if gross_before == self.gross() {
                        self.call(at);
                        if gross_before == self.gross() {
                            break;
                        }
                    }
                }
            }
            let all_arrived = self.late.is_empty();
            self.deliver_late_message();
            self.advance_time(1_100);
            (0..self.nodes.len()).for_each(|at| self.exchange_until_idle(at, ReportReason::Tick));
            self.advance_time(600);
            (0..self.nodes.len()).for_each(|at| self.exchange_until_idle(at, ReportReason::Tick));
            denied_rounds =
                if before == self.gross() && all_arrived { denied_rounds + 1 } else { 0 };
            let is_unlimited = self.limits.last() == Some(&MonthlyLimit::Unlimited);
            if denied_rounds >= 3 || is_unlimited && all_arrived {
                break;
            }
        }
        for at in 0..self.nodes.len() {
            self.exchange_until_idle(at, ReportReason::Tick);
            self.exchange_until_idle(at, ReportReason::Tick);
        }
    }

    pub(super) fn gross(&self) -> u64 {
        self.tally.values().map(|tally| tally.gross).sum()
    }

    /// Exchanges all pending reports over a network without faults.
    pub(super) fn exchange_until_idle(&mut self, at: usize, reason: ReportReason) {
        for _ in 0..4 {
            match reason {
                ReportReason::Tick => self.tick(at),
                reason => self.send_requests(at, reason),
            }
            let Some(in_flight) = self.nodes[at].in_flight.take() else { return };
            let grants = self.apply(&in_flight.message);
            self.answer(at, in_flight.batch, grants);
        }
    }

    pub(super) fn check_final_state(&mut self) {
        let month = self.tally.keys().next_back().copied();
        let max_held_calls =
            self.limits.iter().map(|limit| max_held(calls_allowed(*limit))).max().unwrap_or(0);
        let months: Vec<Month> = self.tally.keys().copied().collect();
        for month in months {
            let (spent, _) = self.engine.usage(&self.account, month);
            let gross = self.tally[&month].gross;
            assert!(spent <= gross, "usage says {spent}, but {gross} were admitted in {month}");
        }
        let (Some(month), Some(limit), false) =
            (month, calls_allowed(self.limits[self.limits.len() - 1]), self.store_may_lose_data)
        else {
            return;
        };
        let mut lost = 0;
        for node in std::mem::take(&mut self.dead) {
            let row = self.engine.row(&self.account, month, &node.node.id);
            let lost_here = row.saturating_sub(node.admitted.get(&month).copied().unwrap_or(0));
            let max_allowed = max_held_calls + node.refunded_unreported;
            assert!(
                lost_here <= max_allowed,
                "a crash lost {lost_here}, at most {max_allowed} allowed"
            );
            lost += lost_here;
        }
        let net = self.tally[&month].net;
        assert!(net + lost >= limit, "{net} admitted and {lost} lost of {limit}");
    }
}
