//! What befalls nodes, clocks and the store.

use super::engine::Copy;
use super::run::{RESTATEMENT, World};
use crate::model::month::Month;
use crate::quota::lease_report::Occasion;

impl World<'_> {
    /// As kill -9 does.
    pub(super) fn crash(&mut self, at: usize) {
        let member = self.members.swap_remove(at);
        self.tell(format_args!("node {} dies", member.node.id[0]));
        self.late.extend(member.flying.as_ref().map(|flight| flight.letter.clone()));
        self.dead.push(member);
        self.be_born();
    }

    /// As SIGTERM does; without an answer it is as good as a crash.
    pub(super) fn end(&mut self, at: usize) {
        if self.members[at].flying.is_none() && self.take_pulse(at).is_some() {
            self.send(at, Occasion::Close);
            if let Some(flight) = self.members[at].flying.take() {
                drop(self.apply(&flight.letter));
            }
        }
        self.crash(at);
    }

    /// Never for as long as it takes to be believed, and never both clocks of a node at once.
    pub(super) fn step_clock(&mut self, at: usize) {
        let skew = self.random.pick(&[0, 0, -86_400, -40, 3_600, 40 * 86_400]);
        let are_right = self.members.iter().all(|member| member.skew == 0);
        if self.engine.is_server() && are_right && self.random.one_in(2) {
            self.tell(format_args!("the server's clock is wrong by {skew} s"));
            self.store_skew = skew;
        } else if self.store_skew == 0 {
            self.members[at].skew = skew;
        }
    }

    /// The server loses what it acknowledged, or only restarts.
    pub(super) fn befall_the_store(&mut self) {
        if !self.loses || self.account_settles.len() > 1 {
            return;
        }
        let Some(month) = self.tally.keys().next_back().copied() else { return };
        match self.random.below(4) {
            0 => self.copy = self.engine.copy(&self.account, month),
            1 => self.restart("restarts"),
            2 => self.lose(month, Copy::new()),
            _ => self.lose(month, self.copy.clone()),
        }
    }

    pub(super) fn restart(&mut self, how: &str) {
        self.tell(format_args!("the store {how}"));
        self.incarnation += 1;
        self.settling_until = self.now + RESTATEMENT;
        for at in 0..self.members.len() {
            // The connection is gone, and with it what was under way.
            self.members[at].is_well = false;
            if let Some(flight) = self.members[at].flying.take() {
                self.fail(at, flight.batch);
            }
        }
        self.late.clear();
    }

    pub(super) fn lose(&mut self, month: Month, copy: Copy) {
        if copy.iter().any(|(field, _)| field == "claim") && self.copy.is_empty() {
            return;
        }
        // What is spent or may be, and what the nodes that live know of it, together or each.
        let known: Vec<(u64, u64)> = self.members.iter().map(|m| m.lease.known(month)).collect();
        let best = known.iter().map(|known| known.0).max().unwrap_or(0);
        let own = known.iter().map(|known| known.1).sum();
        let tally = self.tally.entry(month).or_default();
        tally.uncovered = tally.uncovered.max(tally.net.saturating_sub(best.max(own)));
        self.engine.put_back(&self.account, month, &copy);
        self.engine.end_settling(&self.account, month);
        self.account_settles.remove(&month);
        self.restart(if copy.is_empty() { "is emptied" } else { "goes back" });
        // All who live speak within the restatement, as they do every second.
        for at in 0..self.members.len() {
            self.members[at].cut_off = false;
            self.speak(at, Occasion::Tick);
            if let Some(flight) = self.members[at].flying.take() {
                let standings = self.apply(&flight.letter);
                self.answer(at, flight.batch, standings);
            }
        }
    }
}
