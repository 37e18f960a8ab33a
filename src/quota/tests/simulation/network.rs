//! The messages between the nodes and the store, and the faults of the network.

use std::time::Duration;

use super::run::{InFlight, Message, Simulation, network_error};
use crate::quota::lease_report::ReportReason;
use crate::quota::node::ReportBatch;
use crate::store::{Probe, ReportBatchContext, ReportOutcome, StoreError};

impl Simulation<'_> {
    /// Sends reports as the worker does. If the last operation failed, the node probes the store
    /// first. It requests calls only if its lease is queued.
    pub(super) fn send_reports_as_worker(&mut self, node_index: usize, reason: ReportReason) {
        if self.nodes[node_index].in_flight.is_some() {
            return;
        }
        let waiting_leases =
            std::mem::take(&mut self.nodes[node_index].node.lock_lease_queue().waiting_leases);
        self.nodes[node_index].is_lease_tracked |= !waiting_leases.is_empty();
        if !self.nodes[node_index].last_operation_succeeded {
            match self.probe_and_check_if_totals_due(node_index) {
                // The store may have lost data: totals are reported at once, and the request for
                // calls stays queued.
                Some(true) => {
                    self.nodes[node_index].node.requeue(waiting_leases);
                    return self.send_reports(node_index, ReportReason::Tick);
                }
                Some(false)
                    if reason == ReportReason::Tick && !self.nodes[node_index].is_lease_tracked =>
                {
                    return;
                }
                Some(false) => {}
                None => return self.nodes[node_index].node.requeue(waiting_leases),
            }
        }
        if reason == ReportReason::CallsNeeded && waiting_leases.is_empty() {
            return;
        }
        self.send_reports(node_index, reason);
    }

    pub(super) fn send_reports(&mut self, node_index: usize, reason: ReportReason) {
        let uptime_ms = self.uptime_ms(node_index);
        let node = &mut self.nodes[node_index];
        let held = node.lease.change_accounting(|_, atomic_lease| atomic_lease.load().held());
        node.was_batch_waiting_at_report = node.waiting_batch.is_some();
        let leases = std::slice::from_ref(&node.lease);
        let batch = node.node.collect_reports(leases, reason, uptime_ms);
        self.store.sabotage_after_report(&node.lease, held);
        if batch.reports.is_empty() {
            node.node.deliver_grants(batch, Some(Vec::new()), uptime_ms);
            return;
        }
        let message = Message {
            node_id: node.node.id,
            month: node.node.calendar.latest_month(),
            recovery_ms_left: node.node.store_recovery_ms_left(uptime_ms),
            reports: batch.reports.clone(),
        };
        node.in_flight = Some(InFlight { batch, message });
    }

    pub(super) fn run_worker_tick(&mut self, node_index: usize) {
        if self.nodes[node_index].in_flight.is_some()
            || self.probe_and_check_if_totals_due(node_index).is_none()
        {
            return;
        }
        if self.nodes[node_index].is_lease_tracked {
            self.send_reports(node_index, ReportReason::Tick);
            let node = &mut self.nodes[node_index];
            node.is_lease_tracked = !node.lease.is_fully_reported();
        }
    }

    /// Probes the simulated store. Returns true if the node must report its totals again, or `None`
    /// if the node is cut off.
    pub(super) fn probe_and_check_if_totals_due(&mut self, node_index: usize) -> Option<bool> {
        let uptime_ms = self.uptime_ms(node_index);
        let (unix_now, boottime) = (self.true_now(), self.boottime());
        let store_now = self.store.is_redis().then_some(unix_now + self.store_skew_seconds);
        let probe = Probe {
            incarnation: self.store_incarnation.to_string(),
            unix_now: store_now,
            recovery_left: Duration::from_millis(
                self.recovering_until_ms.saturating_sub(self.now_ms),
            ),
            write_refusal: None,
        };
        let node = &mut self.nodes[node_index];
        node.last_operation_succeeded = !node.is_cut_off;
        if node.is_cut_off || store_now.is_none() {
            node.node.calendar.observe_machine_clock(unix_now + node.clock_skew_seconds, boottime);
        }
        if node.is_cut_off {
            node.node.record_probe_outcome(Some(&network_error()));
            return None;
        }
        if store_now.is_some() {
            node.node.record_probe_outcome(None);
        }
        if let Some(store_now) = store_now {
            node.node.calendar.observe_store_clock(
                store_now,
                unix_now + node.clock_skew_seconds,
                boottime,
            );
        }
        let reporting = node.node.apply_probe(node.last_probe.as_ref(), &probe, uptime_ms);
        node.last_probe = Some(probe);
        node.is_lease_tracked |= !reporting.is_empty();
        Some(!reporting.is_empty())
    }

    /// Decides by chance whether a node's message in flight is lost, delayed, applied without a
    /// reply, or applied and answered; an answered message may later be applied again.
    pub(super) fn resolve_in_flight(&mut self, node_index: usize) {
        let Some(in_flight) = self.nodes[node_index].in_flight.take() else { return };
        let cut_off = self.nodes[node_index].is_cut_off;
        match self.random.random_below(20) {
            _ if cut_off => self.late_messages.push(in_flight.message.clone()),
            0 => return self.fail_exchange(node_index, in_flight.batch),
            1 => self.late_messages.push(in_flight.message.clone()),
            2 => drop(self.apply_at_store(&in_flight.message)),
            outcome => {
                let grants = self.apply_at_store(&in_flight.message);
                if outcome == 3 {
                    self.late_messages.push(in_flight.message.clone());
                }
                return self.deliver_outcome(node_index, in_flight.batch, grants);
            }
        }
        self.fail_exchange(node_index, in_flight.batch);
    }

    pub(super) fn deliver_outcome(
        &mut self,
        node_index: usize,
        batch: ReportBatch,
        grants: Result<Vec<ReportOutcome>, StoreError>,
    ) {
        let uptime_ms = self.uptime_ms(node_index);
        let node = &mut self.nodes[node_index];
        node.last_operation_succeeded = grants.is_ok();
        if grants.is_ok() && !batch.reports.is_empty() {
            // The store now has the latest report. If no batch waited when it was built, the store
            // has its calls back.
            let has_batch = node.was_batch_waiting_at_report || node.waiting_batch.is_some();
            node.batch_at_store = if has_batch { node.batch_at_store } else { 0 };
        }
        node.node.record_report_outcome(grants.as_ref().err());
        if grants.is_ok() {
            self.store.sabotage_before_reply(&node.lease);
        }
        node.node.deliver_grants(batch, grants.ok(), uptime_ms);
    }

    pub(super) fn fail_exchange(&mut self, node_index: usize, batch: ReportBatch) {
        self.deliver_outcome(node_index, batch, Err(network_error()));
        self.nodes[node_index].node.enqueue_urgently(&self.nodes[node_index].lease);
    }

    pub(super) fn deliver_late_message(&mut self) {
        if !self.late_messages.is_empty() {
            let index = self.random.random_below(self.late_messages.len() as u64) as usize;
            let message = self.late_messages.swap_remove(index);
            drop(self.apply_at_store(&message));
        }
    }

    pub(super) fn apply_at_store(
        &mut self,
        message: &Message,
    ) -> Result<Vec<ReportOutcome>, StoreError> {
        let context = ReportBatchContext {
            node_id: &message.node_id,
            latest_begun_month: message.month,
            recovery_left: Duration::from_millis(message.recovery_ms_left),
            needs_replicas: true,
        };
        let grants = self.store.report_leases(context, &message.reports);
        self.nodes.iter_mut().for_each(|node| node.last_checked_row = None);
        if self.is_verbose {
            let report = message.reports.last();
            self.trace(format_args!("node {} reports {report:?}: {grants:?}", message.node_id[0]));
        }
        for (report, grant) in message.reports.iter().zip(grants.as_ref().unwrap()) {
            if grant.as_ref().is_ok_and(|grant| grant.is_recovering) {
                self.recovery_start_ms_by_month.entry(report.month).or_insert(self.now_ms);
            }
        }
        grants
    }
}
