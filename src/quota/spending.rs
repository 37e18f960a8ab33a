//! How a node spends, denies and refunds calls: single calls, and the calls of a batch, all or
//! none.
//!
//! Never waits: the ledger waits for the store's reply, then calls [`Node::charge`] again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::accounting::RefundOutcome;
use super::charge::{Charge, Denial};
use super::lease::{Lease, RefillUrgency};
use super::node::Node;
use super::packed_lease::max_held_calls;
use crate::model::month::Month;

/// The progress of a charge.
pub(super) enum ChargeProgress {
    Done(Result<Charge, Denial>),
    /// The worker will ask the store for calls, and the caller must wait for the reply.
    Wait,
}

impl Node {
    /// Spends `calls` calls, all or none. Returns `None` if the lease holds fewer, or calls of an
    /// earlier month. Never waits.
    pub(super) fn try_charge(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        calls: u64,
    ) -> Option<Charge> {
        let (charge, urgency) = lease.try_spend(month, calls)?;
        match urgency {
            RefillUrgency::NotNeeded => {}
            RefillUrgency::CanWait => self.enqueue(lease, false),
            RefillUrgency::Urgent => self.enqueue_urgently(lease),
        }
        Some(charge)
    }

    /// Spends calls, all or none, denies them, or queues the lease so that the worker asks the
    /// store for calls. After `Wait` for a batch, the caller has to call [`Node::end_batch`] once
    /// the batch no longer waits.
    pub(super) fn charge(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        calls: u64,
        uptime_ms: u64,
    ) -> ChargeProgress {
        let month = self.begun_month(month);
        if let Some(charge) = self.try_charge(lease, month, calls) {
            return ChargeProgress::Done(Ok(charge));
        }
        if lease.is_exhausted(month, uptime_ms) || (calls > 1 && lease.is_batch_denied(calls)) {
            return ChargeProgress::Done(Err(Denial::Exhausted));
        }
        if self.is_store_down()
            || self.is_recovering_from_data_loss(uptime_ms)
            || lease.is_store_unavailable(uptime_ms)
        {
            return ChargeProgress::Done(self.charge_unbacked(lease, month, calls));
        }
        match calls {
            1 => lease.record_requested_month(month),
            _ => lease.begin_batch(month, calls),
        }
        self.enqueue_urgently(lease);
        ChargeProgress::Wait
    }

    /// Ends the wait of a batch. Calls that only the batch needed go back to the store.
    pub(super) fn end_batch(&self, lease: &Arc<Lease>) {
        if lease.end_batch() {
            self.enqueue_urgently(lease);
        }
    }

    /// Admits or denies calls whose deadline has passed. If the store hangs, the store counts as
    /// down from now on. A single call gets a call that the lease holds, unless the store is up and
    /// has answered a batch that waits: otherwise single calls could take calls from the batch
    /// again and again. If the store counts as down, all other calls may be admitted unbacked. Else
    /// the store is only slow, and all other calls are denied.
    pub(super) fn charge_after_timeout(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        calls: u64,
        store_hung: bool,
    ) -> Result<Charge, Denial> {
        if store_hung {
            self.health.is_down.store(true, Ordering::Relaxed);
        }
        let is_down = self.is_store_down();
        if calls == 1
            && (is_down || !lease.is_batch_answered())
            && let Some(charge) = self.try_charge(lease, self.begun_month(month), calls)
        {
            return Ok(charge);
        }
        match is_down {
            true => self.charge_unbacked(lease, month, calls),
            false => Err(Denial::StoreUnavailable),
        }
    }

    /// Returns the month of a call. If the store's clock has shown since that this month has not
    /// begun, returns the latest month that has begun.
    fn begun_month(&self, month: Month) -> Month {
        month.min(self.calendar.latest_month())
    }

    fn charge_unbacked(
        &self,
        lease: &Arc<Lease>,
        month: Month,
        calls: u64,
    ) -> Result<Charge, Denial> {
        // The lease is queued now, so that it is reported once the store answers again.
        lease.record_requested_month(month);
        self.enqueue_urgently(lease);
        if self.fails_closed() {
            return Err(Denial::StoreUnavailable);
        }
        let month = self.begun_month(month);
        lease.spend_unbacked(month, calls, &self.unsettled_calls)
    }

    /// Refunds a charge. Returns false if the charge stays spent, because the refund comes too
    /// late.
    pub(super) fn refund(&self, lease: &Arc<Lease>, charge: Charge) -> bool {
        if charge.is_unbacked {
            return lease.refund_unbacked(&charge, &self.unsettled_calls);
        }
        let refund = lease.refund(&charge);
        if refund != RefundOutcome::Stale {
            // The store must learn of the refund, even if the lease was fully reported long ago.
            self.enqueue_urgently(lease);
        }
        refund != RefundOutcome::Stale
    }
}

impl Lease {
    pub(super) fn record_requested_month(&self, month: Month) {
        self.lock_accounting().record_requested_month(month);
    }

    /// Records that a batch of `calls` calls waits for the store. At most one batch waits, because
    /// only the first call in the wait queue does.
    pub(super) fn begin_batch(&self, month: Month, calls: u64) {
        let mut accounting = self.lock_accounting();
        accounting.record_requested_month(month);
        if accounting.wanted_calls != calls {
            (accounting.wanted_calls, accounting.is_batch_denied) = (calls, false);
            accounting.is_batch_answered = false;
        }
    }

    /// Returns true if a batch waits, and the store has answered a report that names its calls.
    fn is_batch_answered(&self) -> bool {
        self.lock_accounting().is_batch_answered
    }

    /// Returns true if fewer calls are left than the `calls` that a batch needs: the limit is
    /// lower, or the store has said so since the batch began to wait.
    pub(super) fn is_batch_denied(&self, calls: u64) -> bool {
        let accounting = self.lock_accounting();
        let is_answered = accounting.wanted_calls == calls && accounting.is_batch_denied;
        is_answered || accounting.limit.is_some_and(|limit| limit < calls)
    }

    /// Records that no batch waits any longer, and withdraws the calls that this node may hold only
    /// while a batch waits. Returns true if a batch has waited.
    pub(super) fn end_batch(&self) -> bool {
        self.change_accounting(|accounting, atomic_lease| {
            let has_waited = std::mem::take(&mut accounting.wanted_calls) > 0;
            accounting.is_batch_answered = false;
            if std::mem::take(&mut accounting.is_batch_denied) || has_waited {
                let max_held = max_held_calls(accounting.limit, accounting.leased_by_all());
                accounting.calls_to_return += atomic_lease.withdraw_all_but(max_held, false);
            }
            has_waited
        })
    }

    /// The calls that are left of the month's limit, as far as this node knows; `None` if the
    /// account is unlimited.
    pub fn remaining_calls(&self, month: Month) -> Option<u64> {
        self.change_accounting(|accounting, atomic_lease| {
            let limit = accounting.limit?;
            let is_of_month = accounting.month == month.number();
            let held = || atomic_lease.load().held();
            Some(if is_of_month { accounting.unleased_calls() + held() } else { limit })
        })
    }
}
