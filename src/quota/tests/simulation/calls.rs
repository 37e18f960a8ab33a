//! The calls and batches of clients, and their refunds.

use super::run::Simulation;
use crate::model::month::Month;
use crate::quota::spending::ChargeProgress;
use crate::quota::{Charge, Denial};

impl Simulation<'_> {
    pub(super) fn make_call(&mut self, node_index: usize) {
        self.charge(node_index, 1);
    }

    /// Sends a batch, or asks again for the one that waits.
    pub(super) fn make_batch(&mut self, node_index: usize) {
        let drawn = self.random.pick(&[2, 3, 9, 20, 60, 150, 1_000]);
        let calls = self.nodes[node_index].waiting_batch.unwrap_or(drawn);
        let has_to_wait = self.charge(node_index, calls);
        let node = &mut self.nodes[node_index];
        node.waiting_batch = has_to_wait.then_some(calls);
        match has_to_wait {
            true => node.batch_at_store = node.batch_at_store.max(calls),
            false => node.node.end_batch(&node.lease),
        }
    }

    /// Ends the wait of every batch, as if its client had left.
    pub(super) fn end_batches(&mut self) {
        for node in &mut self.nodes {
            if node.waiting_batch.take().is_some() {
                node.node.end_batch(&node.lease);
            }
        }
    }

    /// Charges calls, all or none. Returns true if they have to wait.
    fn charge(&mut self, node_index: usize, calls: u64) -> bool {
        let (boottime, uptime_ms) = (self.boottime(), self.uptime_ms(node_index));
        let (now, store_skew) = (self.true_now(), self.store_skew_seconds);
        let node = &mut self.nodes[node_index];
        let believed = node.node.calendar.believed_now(boottime);
        // Clocks may differ by 5 s and still agree; 6 s allows for rounding.
        let is_implausible = (believed - now).abs() > 6 && !node.started_with_wrong_clock;
        let skew = node.clock_skew_seconds;
        assert!(!is_implausible, "{believed} is believed at {now}, skews {skew} {store_skew}");
        let month = node.node.calendar.month_to_charge(believed, || boottime);
        let progress = match node.node.charge(&node.lease, month, calls, uptime_ms) {
            ChargeProgress::Wait if self.random.one_in(6) => {
                let store_hung = self.random.one_in(4);
                let late = node.node.charge_after_timeout(&node.lease, month, calls, store_hung);
                ChargeProgress::Done(late)
            }
            progress => progress,
        };
        match progress {
            ChargeProgress::Done(Ok(charge)) => self.record_admitted(node_index, charge),
            ChargeProgress::Done(Err(Denial::Exhausted | Denial::StoreUnavailable)) => {}
            ChargeProgress::Wait => return true,
        }
        false
    }

    pub(super) fn record_admitted(&mut self, node_index: usize, charge: Charge) {
        let (month, calls, unbacked) = (charge.month(), charge.calls(), charge.is_unbacked);
        let node = &mut self.nodes[node_index];
        assert!(node.last_charged_month <= Some(month), "a past month began again");
        node.last_charged_month = Some(month);
        *node.net_calls_by_month.entry(month).or_default() += calls;
        if self.random.one_in(4) {
            node.refundable_charges.push(charge);
        }
        // A wrong clock starts no month early.
        assert!(month <= Month::containing(self.true_now() + 6), "{month} has not begun");
        let limit = self.highest_limit_in_force().map(|limit| limit + self.allowed_overrun(limit));
        let tally = self.tallies.entry(month).or_default();
        tally.gross_calls += calls;
        tally.net_calls += calls;
        tally.unbacked_calls += if unbacked { calls } else { 0 };
        let max_admitted =
            limit.map_or(u64::MAX, |limit| limit + tally.unbacked_calls + tally.maybe_lost_calls);
        let net = tally.net_calls;
        assert!(unbacked || net <= max_admitted, "{net} admitted, at most {max_admitted} allowed");
    }

    pub(super) fn refund_random_call(&mut self, node_index: usize) {
        let node = &mut self.nodes[node_index];
        if node.refundable_charges.is_empty() {
            return;
        }
        let charge = node
            .refundable_charges
            .swap_remove(self.random.random_below(node.refundable_charges.len() as u64) as usize);
        let (month, calls, unbacked) = (charge.month(), charge.calls(), charge.is_unbacked);
        let row = node.lease.month_held_limits_and_leased().3;
        let unbacked_calls = if unbacked { calls } else { 0 };
        if node.node.refund(&node.lease, charge) {
            // A refunded call that the lease can't hold goes to the store, once it is reported.
            node.unreported_refunds +=
                row - node.lease.month_held_limits_and_leased().3 + unbacked_calls;
            *node.net_calls_by_month.entry(month).or_default() -= calls;
            let tally = self.tallies.entry(month).or_default();
            tally.net_calls -= calls;
            tally.unbacked_calls -= unbacked_calls;
        }
    }
}
