//! What must hold after each event, and at the end.

use super::run::{RESTATEMENT, Simulation, bound, calls};
use crate::model::month::Month;
use crate::quota::lease_report::ReportReason;
use crate::store::MonthlyLimit;

impl Simulation<'_> {
    pub(super) fn check_invariants(&mut self) {
        for at in 0..self.nodes.len() {
            let member = &self.nodes[at];
            let (month, held, limits, row) = member.lease.exposure();
            let most = limits.iter().map(|limit| bound(*limit)).max().unwrap_or(0);
            assert!(held <= most, "{held} held or asked for, where {most} may be");
            // The store is asked only when it may have heard something new.
            let known = Some((month, row)) == member.known_row;
            if let Some(month) = Month::from_number(month).filter(|_| month > 0 && !known) {
                let stored = self.engine.row(&self.account, month, &member.node.id);
                let member = &mut self.nodes[at];
                member.known_row = Some((month.number(), row));
                assert!(
                    self.store_may_lose_data || row <= stored,
                    "{row} may be spent, the store knows {stored}"
                );
            }
        }
    }

    /// All faults are over: everybody is told everything, and the rest of the limit is spent.
    pub(super) fn quiesce(&mut self) {
        self.store_skew = 0;
        for at in 0..self.nodes.len() {
            let member = &mut self.nodes[at];
            (member.cut_off, member.skew) = (false, 0);
        }
        while self.nodes.iter().any(|member| member.limit + 1 < self.limits.len()) {
            (0..self.nodes.len()).for_each(|at| self.apply_next_limit(at));
        }
        self.advance_time(2 * RESTATEMENT);
        let mut refused_rounds = 0;
        for _ in 0..400 {
            let before = self.gross();
            for at in 0..self.nodes.len() {
                for _ in 0..200 {
                    let seen = self.gross();
                    self.call(at);
                    self.exchange_until_idle(at, ReportReason::CallsNeeded);
                    if seen == self.gross() {
                        self.call(at);
                        if seen == self.gross() {
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
            refused_rounds =
                if before == self.gross() && all_arrived { refused_rounds + 1 } else { 0 };
            let enough = self.limits.last() == Some(&MonthlyLimit::Unlimited);
            if refused_rounds >= 3 || enough && all_arrived {
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

    /// Says what there is to say, over a network that works.
    pub(super) fn exchange_until_idle(&mut self, at: usize, occasion: ReportReason) {
        for _ in 0..4 {
            match occasion {
                ReportReason::Tick => self.tick(at),
                occasion => self.speak(at, occasion),
            }
            let Some(flight) = self.nodes[at].in_flight.take() else { return };
            let standings = self.apply(&flight.letter);
            self.answer(at, flight.batch, standings);
        }
    }

    pub(super) fn check_final_state(&mut self) {
        let month = self.tally.keys().next_back().copied();
        let most_held = self.limits.iter().map(|limit| bound(calls(*limit))).max().unwrap_or(0);
        let months: Vec<Month> = self.tally.keys().copied().collect();
        for month in months {
            let (spent, _) = self.engine.usage(&self.account, month);
            let gross = self.tally[&month].gross;
            assert!(spent <= gross, "usage says {spent}, but {gross} were admitted in {month}");
        }
        let (Some(month), Some(limit), false) =
            (month, calls(self.limits[self.limits.len() - 1]), self.store_may_lose_data)
        else {
            return;
        };
        let mut lost = 0;
        for member in std::mem::take(&mut self.dead) {
            let row = self.engine.row(&self.account, month, &member.node.id);
            let here = row.saturating_sub(member.admitted.get(&month).copied().unwrap_or(0));
            let most = most_held + member.refunded_unreported;
            assert!(here <= most, "a crash lost {here}, where {most} may be");
            lost += here;
        }
        let net = self.tally[&month].net;
        assert!(net + lost >= limit, "{net} admitted and {lost} lost of {limit}");
    }
}
