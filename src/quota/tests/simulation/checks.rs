//! What the ledger promises, checked after each event and at the end of a run.

use super::run::{RECOVERY_PERIOD_MS, Simulation, expected_max_held_calls};
use crate::model::month::Month;
use crate::quota::lease_report::ReportReason;

/// A limit that no run reaches. It allows leases of more than 64 calls.
pub(super) const UNREACHED_LIMIT: u64 = 1_000_000;

impl Simulation<'_> {
    pub(super) fn check_invariants(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let (month, held, limits, row) = node.lease.month_held_limits_and_leased();
            let max_allowed =
                limits.iter().map(|limit| expected_max_held_calls(*limit)).max().unwrap_or(0);
            // A batch that waits may hold or request more: its own calls.
            let batch = node.lease.change_accounting(|accounting, _| accounting.batch_calls());
            let max_allowed = max_allowed.max(batch);
            assert!(held <= max_allowed, "{held} held or requested, at most {max_allowed} allowed");
            // The store's row is read only if it may have changed since the last check.
            let known = Some((month, row)) == node.last_checked_row;
            if let Some(month) = Month::from_number(month).filter(|_| month > 0 && !known) {
                let stored = self.store.leased_by_node(&self.account, month, &node.node.id);
                let node = &mut self.nodes[at];
                node.last_checked_row = Some((month.number(), row));
                assert!(
                    self.store_may_lose_data || row <= stored,
                    "{row} may be spent, the store knows {stored}"
                );
            }
        }
    }

    /// Ends all faults, delivers every report and grant, and spends the calls left of the limit.
    pub(super) fn spend_all_left_without_faults(&mut self) {
        self.store_skew_seconds = 0;
        self.end_batches();
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            (node.is_cut_off, node.clock_skew_seconds) = (false, 0);
        }
        while self.nodes.iter().any(|node| node.limit_index + 1 < self.limits.len()) {
            (0..self.nodes.len()).for_each(|at| self.apply_next_limit(at));
        }
        self.advance_time(2 * RECOVERY_PERIOD_MS);
        let mut denied_rounds = 0;
        for _ in 0..400 {
            let before = self.total_admitted_gross();
            for at in 0..self.nodes.len() {
                for _ in 0..200 {
                    let gross_before = self.total_admitted_gross();
                    self.make_call(at);
                    self.exchange_until_idle(at, ReportReason::CallsNeeded);
                    if gross_before == self.total_admitted_gross() {
                        self.make_call(at);
                        if gross_before == self.total_admitted_gross() {
                            break;
                        }
                    }
                }
            }
            let all_arrived = self.late_messages.is_empty();
            self.deliver_late_message();
            self.advance_time(1_100);
            (0..self.nodes.len()).for_each(|at| self.exchange_until_idle(at, ReportReason::Tick));
            self.advance_time(600);
            (0..self.nodes.len()).for_each(|at| self.exchange_until_idle(at, ReportReason::Tick));
            denied_rounds = if before == self.total_admitted_gross() && all_arrived {
                denied_rounds + 1
            } else {
                0
            };
            let limit = self.limits.last().and_then(|limit| limit.calls());
            let is_reachable = limit.is_some_and(|limit| limit != UNREACHED_LIMIT);
            if denied_rounds >= 3 || !is_reachable && all_arrived {
                break;
            }
        }
        for at in 0..self.nodes.len() {
            self.exchange_until_idle(at, ReportReason::Tick);
            self.exchange_until_idle(at, ReportReason::Tick);
        }
    }

    pub(super) fn total_admitted_gross(&self) -> u64 {
        self.tallies.values().map(|tally| tally.gross_calls).sum()
    }

    /// Exchanges reports and grants without network faults until the node has nothing to send.
    pub(super) fn exchange_until_idle(&mut self, node_index: usize, reason: ReportReason) {
        for _ in 0..4 {
            match reason {
                ReportReason::Tick => self.run_worker_tick(node_index),
                reason => self.send_reports_as_worker(node_index, reason),
            }
            let Some(in_flight) = self.nodes[node_index].in_flight.take() else { return };
            let grants = self.apply_at_store(&in_flight.message);
            self.deliver_outcome(node_index, in_flight.batch, grants);
        }
    }

    pub(super) fn check_final_state(&mut self) {
        // A node whose clock was ahead may have counted in a later month, and crashed.
        let served = self.latest_month().filter(|month| self.tallies.contains_key(month));
        let month = served.or_else(|| self.tallies.keys().next_back().copied());
        let max_held_calls = self
            .limits
            .iter()
            .map(|limit| expected_max_held_calls(limit.calls()))
            .max()
            .unwrap_or(0);
        let months: Vec<Month> = self.tallies.keys().copied().collect();
        for month in months {
            let (spent, _) = self.store.spent_and_leased(&self.account, month);
            let gross = self.tallies[&month].gross_calls;
            assert!(spent <= gross, "usage says {spent}, but {gross} were admitted in {month}");
        }
        let (Some(month), Some(limit), false) =
            (month, self.limits[self.limits.len() - 1].calls(), self.store_may_lose_data)
        else {
            return;
        };
        let mut lost = 0;
        for node in std::mem::take(&mut self.ended_nodes) {
            let row = self.store.leased_by_node(&self.account, month, &node.node.id);
            let lost_here =
                row.saturating_sub(node.net_calls_by_month.get(&month).copied().unwrap_or(0));
            let max_allowed = max_held_calls.max(node.batch_at_store) + node.unreported_refunds;
            assert!(
                lost_here <= max_allowed,
                "a crash lost {lost_here}, at most {max_allowed} allowed"
            );
            lost += lost_here;
        }
        let net = self.tallies[&month].net_calls;
        assert!(
            net + lost >= limit || limit == UNREACHED_LIMIT,
            "{net} admitted and {lost} lost of {limit}"
        );
    }
}
