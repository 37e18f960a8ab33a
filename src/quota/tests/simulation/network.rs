//! What the nodes say to the store, and what the network makes of it.

use std::time::Duration;

use super::run::{InFlight, Message, Simulation, failure};
use crate::quota::lease_report::ReportReason;
use crate::quota::node::Batch;
use crate::store::{BatchContext, Grant, Probe, StoreError};

impl Simulation<'_> {
    /// As the worker does: its pulse first if it was not well, then what is wanted.
    pub(super) fn speak(&mut self, at: usize, occasion: ReportReason) {
        if self.nodes[at].in_flight.is_some() {
            return;
        }
        let waiting_leases = std::mem::take(&mut self.nodes[at].node.queue().waiting_leases);
        self.nodes[at].is_active |= !waiting_leases.is_empty();
        if !self.nodes[at].is_healthy {
            match self.probe_store(at) {
                // What may be lost is said at once, and the wish remains.
                Some(true) => {
                    self.nodes[at].node.requeue(waiting_leases);
                    return self.send(at, ReportReason::Tick);
                }
                Some(false) if occasion == ReportReason::Tick && !self.nodes[at].is_active => {
                    return;
                }
                Some(false) => {}
                None => return self.nodes[at].node.requeue(waiting_leases),
            }
        }
        if occasion == ReportReason::CallsNeeded && waiting_leases.is_empty() {
            return;
        }
        self.send(at, occasion);
    }

    pub(super) fn send(&mut self, at: usize, occasion: ReportReason) {
        let clock = self.clock(at);
        let member = &mut self.nodes[at];
        let held = member.lease.with_accounting(|_, purse| purse.load().held());
        let batch = member.node.collect_reports(std::slice::from_ref(&member.lease), occasion);
        self.engine.after_report(&member.lease, held);
        if batch.statements.is_empty() {
            member.node.deliver_grants(batch, Some(Vec::new()), clock);
            return;
        }
        let letter = Message {
            node: member.node.id,
            month: member.node.calendar.latest_month(),
            settle: member.node.recovery_ms_left(clock),
            statements: batch.statements.clone(),
        };
        member.in_flight = Some(InFlight { batch, letter });
    }

    pub(super) fn tick(&mut self, at: usize) {
        if self.nodes[at].in_flight.is_some() || self.probe_store(at).is_none() {
            return;
        }
        if self.nodes[at].is_active {
            self.send(at, ReportReason::Tick);
            let member = &mut self.nodes[at];
            member.is_active = !member.lease.is_fully_reported();
        }
    }

    /// The pulse, as the server would give it; whether there is something to restate.
    pub(super) fn probe_store(&mut self, at: usize) -> Option<bool> {
        let clock = self.clock(at);
        let (unix_now, passed) = (self.true_now(), self.passed());
        let heard = self.engine.is_server().then_some(unix_now + self.store_skew);
        let pulse = Probe {
            incarnation: self.incarnation.to_string(),
            unix_now: heard,
            recovery_left: Duration::from_millis(self.recovering_until.saturating_sub(self.now)),
        };
        let member = &mut self.nodes[at];
        member.is_healthy = !member.cut_off;
        if member.cut_off || heard.is_none() {
            member.node.calendar.observe_machine_clock(unix_now + member.skew, passed);
        }
        if member.cut_off {
            member.node.record_probe_outcome(Some(&failure()));
            return None;
        }
        if heard.is_some() {
            member.node.record_probe_outcome(None);
        }
        if let Some(store_now) = heard {
            member.node.calendar.observe_store_clock(store_now, unix_now + member.skew, passed);
        }
        let restating = member.node.on_probe(member.pulse.as_ref(), &pulse, clock);
        member.pulse = Some(pulse);
        member.is_active |= !restating.is_empty();
        Some(!restating.is_empty())
    }

    /// What becomes of what is under way.
    pub(super) fn resolve_in_flight(&mut self, at: usize) {
        let Some(flight) = self.nodes[at].in_flight.take() else { return };
        let cut_off = self.nodes[at].cut_off;
        match self.random.below(20) {
            _ if cut_off => self.late.push(flight.letter.clone()),
            0 => return self.fail(at, flight.batch),
            1 => self.late.push(flight.letter.clone()),
            2 => drop(self.apply(&flight.letter)),
            fate => {
                let standings = self.apply(&flight.letter);
                if fate == 3 {
                    self.late.push(flight.letter.clone());
                }
                return self.answer(at, flight.batch, standings);
            }
        }
        self.fail(at, flight.batch);
    }

    pub(super) fn answer(
        &mut self,
        at: usize,
        batch: Batch,
        standings: Result<Vec<Option<Grant>>, StoreError>,
    ) {
        let clock = self.clock(at);
        let member = &mut self.nodes[at];
        member.is_healthy = standings.is_ok();
        member.node.record_report_outcome(standings.as_ref().err());
        if standings.is_ok() {
            self.engine.before_reply(&member.lease);
        }
        member.node.deliver_grants(batch, standings.ok(), clock);
    }

    pub(super) fn fail(&mut self, at: usize, batch: Batch) {
        self.answer(at, batch, Err(failure()));
        self.nodes[at].node.request_refill(&self.nodes[at].lease);
    }

    pub(super) fn deliver_late_message(&mut self) {
        if !self.late.is_empty() {
            let one = self.random.below(self.late.len() as u64) as usize;
            let letter = self.late.swap_remove(one);
            drop(self.apply(&letter));
        }
    }

    pub(super) fn apply(&mut self, letter: &Message) -> Result<Vec<Option<Grant>>, StoreError> {
        let round = BatchContext {
            node: &letter.node,
            month: letter.month,
            recovery_left: Duration::from_millis(letter.settle),
            needs_replicas: true,
        };
        let standings = self.engine.state(round, &letter.statements);
        self.nodes.iter_mut().for_each(|member| member.known_row = None);
        if self.tells {
            let said = letter.statements.last();
            self.trace(format_args!("node {} says {said:?}: {standings:?}", letter.node[0]));
        }
        for (statement, standing) in letter.statements.iter().zip(standings.as_ref().unwrap()) {
            if standing.is_some_and(|standing| standing.is_recovering) {
                self.account_recovering_since.entry(statement.month).or_insert(self.now);
            }
        }
        standings
    }
}
