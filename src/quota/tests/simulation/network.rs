//! What the nodes say to the store, and what the network makes of it.

use std::time::Duration;

use super::run::{Flight, Letter, World, failure};
use crate::quota::lease_report::Occasion;
use crate::quota::node::Batch;
use crate::store::{Pulse, Round, Standing, StoreError};

impl World<'_> {
    /// As the worker does: its pulse first if it was not well, then what is wanted.
    pub(super) fn speak(&mut self, at: usize, occasion: Occasion) {
        if self.members[at].flying.is_some() {
            return;
        }
        let wanting = std::mem::take(&mut self.members[at].node.queue().wanting);
        self.members[at].is_active |= !wanting.is_empty();
        if !self.members[at].is_well {
            match self.take_pulse(at) {
                // What may be lost is said at once, and the wish remains.
                Some(true) => {
                    self.members[at].node.put_back(wanting);
                    return self.send(at, Occasion::Tick);
                }
                Some(false) if occasion == Occasion::Tick && !self.members[at].is_active => return,
                Some(false) => {}
                None => return self.members[at].node.put_back(wanting),
            }
        }
        if occasion == Occasion::Wanted && wanting.is_empty() {
            return;
        }
        self.send(at, occasion);
    }

    pub(super) fn send(&mut self, at: usize, occasion: Occasion) {
        let clock = self.clock(at);
        let member = &mut self.members[at];
        let held = member.lease.with_accounting(|_, purse| purse.look().held());
        let batch = member.node.collect(std::slice::from_ref(&member.lease), occasion);
        self.engine.after_report(&member.lease, held);
        if batch.statements.is_empty() {
            member.node.deliver(batch, Some(Vec::new()), clock);
            return;
        }
        let letter = Letter {
            node: member.node.id,
            month: member.node.calendar.latest(),
            settle: member.node.settles_for(clock),
            statements: batch.statements.clone(),
        };
        member.flying = Some(Flight { batch, letter });
    }

    pub(super) fn tick(&mut self, at: usize) {
        if self.members[at].flying.is_some() || self.take_pulse(at).is_none() {
            return;
        }
        if self.members[at].is_active {
            self.send(at, Occasion::Tick);
            let member = &mut self.members[at];
            member.is_active = !member.lease.is_settled();
        }
    }

    /// The pulse, as the server would give it; whether there is something to restate.
    pub(super) fn take_pulse(&mut self, at: usize) -> Option<bool> {
        let clock = self.clock(at);
        let (unix_now, passed) = (self.true_now(), self.passed());
        let heard = self.engine.is_server().then_some(unix_now + self.store_skew);
        let pulse = Pulse {
            incarnation: self.incarnation.to_string(),
            unix_now: heard,
            settle: Duration::from_millis(self.settling_until.saturating_sub(self.now)),
        };
        let member = &mut self.members[at];
        member.is_well = !member.cut_off;
        if member.cut_off || heard.is_none() {
            member.node.calendar.hear_machine(unix_now + member.skew, passed);
        }
        if member.cut_off {
            member.node.note_pulse(Some(&failure()));
            return None;
        }
        if heard.is_some() {
            member.node.note_pulse(None);
        }
        if let Some(store_now) = heard {
            member.node.calendar.hear_store(store_now, unix_now + member.skew, passed);
        }
        let restating = member.node.feel(member.pulse.as_ref(), &pulse, clock);
        member.pulse = Some(pulse);
        member.is_active |= !restating.is_empty();
        Some(!restating.is_empty())
    }

    /// What becomes of what is under way.
    pub(super) fn arrive(&mut self, at: usize) {
        let Some(flight) = self.members[at].flying.take() else { return };
        let cut_off = self.members[at].cut_off;
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
        standings: Result<Vec<Option<Standing>>, StoreError>,
    ) {
        let clock = self.clock(at);
        let member = &mut self.members[at];
        member.is_well = standings.is_ok();
        member.node.note(standings.as_ref().err());
        if standings.is_ok() {
            self.engine.before_reply(&member.lease);
        }
        member.node.deliver(batch, standings.ok(), clock);
    }

    pub(super) fn fail(&mut self, at: usize, batch: Batch) {
        self.answer(at, batch, Err(failure()));
        self.members[at].node.want(&self.members[at].lease);
    }

    pub(super) fn arrive_late(&mut self) {
        if !self.late.is_empty() {
            let one = self.random.below(self.late.len() as u64) as usize;
            let letter = self.late.swap_remove(one);
            drop(self.apply(&letter));
        }
    }

    pub(super) fn apply(&mut self, letter: &Letter) -> Result<Vec<Option<Standing>>, StoreError> {
        let round = Round {
            node: &letter.node,
            month: letter.month,
            settle: Duration::from_millis(letter.settle),
            needs_replicas: true,
        };
        let standings = self.engine.state(round, &letter.statements);
        self.members.iter_mut().for_each(|member| member.known_row = None);
        if self.tells {
            let said = letter.statements.last();
            self.tell(format_args!("node {} says {said:?}: {standings:?}", letter.node[0]));
        }
        for (statement, standing) in letter.statements.iter().zip(standings.as_ref().unwrap()) {
            if standing.is_some_and(|standing| standing.settling) {
                self.account_settles.entry(statement.month).or_insert(self.now);
            }
        }
        standings
    }
}
