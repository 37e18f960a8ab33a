//! One life: some nodes, one account, one store, and what befalls them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::engine::Copy;
use super::sabotage::{Sabotage, SabotagedStore};
use crate::model::month::Month;
use crate::quota::accounting::Occasion;
use crate::quota::calendar::Calendar;
use crate::quota::lease::{Lease, Spent};
use crate::quota::node::{Batch, Node, Step};
use crate::quota::{Denied, OnFailure};
use crate::store::{LimitRow, Pulse, Round, Standing, Statement, StoreError};

/// The last second of November 2026.
const END: i64 = 1_796_083_199;
/// As in the script: for so long after a loss nothing is granted.
const RESTATEMENT: u64 = 3_000;

/// Splitmix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: std::marker::Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A process run.
struct Member {
    node: Node,
    lease: Arc<Lease>,
    /// The version of the limit that it knows.
    limit: usize,
    born: u64,
    /// Its clock is wrong by so many seconds.
    skew: i64,
    /// It could not know better at its start: the time may be wrong, the month is not.
    has_odd_start: bool,
    cut_off: bool,
    is_well: bool,
    pulse: Option<Pulse>,
    is_active: bool,
    flying: Option<Flight>,
    /// Calls that may still be given back.
    open: Vec<Spent>,
    /// Calls that were given back and that the store may not have heard of.
    for_the_store: u64,
    /// What may be spent, as it was when the store was last asked whether it knows.
    known_row: Option<(u16, u64)>,
    last_month: Option<Month>,
    /// What it has admitted with a lease, less what it took back.
    admitted: BTreeMap<Month, u64>,
}

/// Statements under way, and who waits for the answer.
struct Flight {
    batch: Batch,
    letter: Letter,
}

/// Statements as the network has them.
#[derive(Clone)]
struct Letter {
    node: [u8; 16],
    month: Month,
    settle: u64,
    statements: Vec<Statement>,
}

/// What happened in a month, over all nodes that ever were.
#[derive(Default)]
struct Tally {
    /// Admitted at any time, given back or not.
    gross: u64,
    /// Admitted and not given back.
    net: u64,
    /// Of these, without the store's word.
    blind: u64,
    /// What a store that lost its numbers may cost: spent, but known to nobody who lives.
    uncovered: u64,
}

pub struct World<'e> {
    random: Random,
    engine: &'e mut SabotagedStore,
    account: String,
    tells: bool,
    on_failure: OnFailure,
    /// Milliseconds since the life began, and the second in which it did.
    now: u64,
    began: i64,
    /// The server's clock is wrong by so many seconds; never while one of a node is.
    store_skew: i64,
    members: Vec<Member>,
    born: u64,
    /// Gone without a farewell.
    dead: Vec<Member>,
    /// Requests that nobody waits for any more; they may still arrive.
    late: Vec<Letter>,
    limits: Vec<LimitRow>,
    tally: BTreeMap<Month, Tally>,
    /// Which life of the store it is, and until when all accounts settle.
    incarnation: u32,
    settling_until: u64,
    account_settles: BTreeMap<Month, u64>,
    loses: bool,
    copy: Copy,
}

impl<'e> World<'e> {
    pub fn new(seed: u64, engine: &'e mut SabotagedStore, tells: bool) -> World<'e> {
        let mut random = Random(seed);
        let limit = match random.below(24) {
            0 => LimitRow::Unlimited,
            1 => LimitRow::Calls(random.pick(&[600, 1_500])),
            _ => LimitRow::Calls(random.pick(&[0, 1, 2, 5, 10, 40, 60, 99, 100, 101, 130, 250])),
        };
        let began = match random.one_in(3) {
            true => END - random.below(60) as i64,
            false => END - 864_000,
        };
        let on_failure = if random.one_in(3) { OnFailure::Open } else { OnFailure::Closed };
        let loses = engine.is_server() && random.one_in(3);
        let mut world = World {
            random,
            account: format!("seed-{seed}"),
            engine,
            tells,
            on_failure,
            now: 0,
            began,
            store_skew: 0,
            members: Vec::new(),
            born: 0,
            dead: Vec::new(),
            late: Vec::new(),
            limits: vec![limit],
            tally: BTreeMap::new(),
            incarnation: 0,
            settling_until: 0,
            account_settles: BTreeMap::new(),
            loses,
            copy: Copy::new(),
        };
        for _ in 0..=world.random.below(4) {
            world.be_born();
        }
        world.tell(format_args!("limit {limit:?}, {on_failure:?}, loses {loses}"));
        world
    }

    fn tell(&self, what: std::fmt::Arguments<'_>) {
        if self.tells {
            println!("{:>7} ms  {what}", self.now);
        }
    }

    /// Lives until the end, and checks all that must hold.
    pub fn live(mut self) {
        for _ in 0..40 + self.random.below(160) {
            self.event();
            self.check();
        }
        self.come_to_rest();
        self.check_the_end();
        let months: Vec<Month> = self.tally.keys().copied().collect();
        for month in months {
            self.engine.end_settling(&self.account, month);
            self.engine.put_back(&self.account, month, &Copy::new());
        }
    }

    // --- what happens ---

    fn event(&mut self) {
        let at = self.random.below(self.members.len() as u64) as usize;
        match self.random.below(100) {
            0..35 => {
                for _ in 0..=self.random.below(12) {
                    self.call(at);
                }
            }
            35..41 => self.give_back(at),
            41..63 => self.speak(at, Occasion::Wanted),
            63..70 => self.tick(at),
            70..82 => self.arrive(at),
            82..85 => self.arrive_late(),
            85..91 => {
                let longest = self.random.pick(&[20, 200, 1_500]);
                let ms = 1 + self.random.below(longest);
                self.pass(ms);
            }
            91..93 => self.members[at].cut_off = !self.members[at].cut_off,
            93 => self.crash(at),
            94 => self.end(at),
            95 => self.change_limit(),
            96..98 => self.learn(at),
            98 => self.step_clock(at),
            _ => self.befall_the_store(),
        }
    }

    fn be_born(&mut self) {
        self.born += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.born.to_le_bytes());
        let skew = self.skew_at_birth();
        let (now, passed) = (self.true_now(), self.passed());
        let (machine_now, store_now) = (now + skew, now + self.store_skew);
        let (mut known, mut second) = (self.latest_month(), machine_now);
        if self.engine.is_sabotaged_by(Sabotage::TrustAnyClock) {
            known = known.max(Some(Month::containing(machine_now)));
            second = store_now;
        }
        let calendar = Calendar::new(known, machine_now, passed);
        if self.engine.is_server() {
            calendar.hear_store(store_now, second, passed);
        }
        let node = Node::new(id, calendar, self.on_failure, 1_000_000);
        let limit = self.limits.len() - 1;
        let lease = node.lease(&self.account, self.limits[limit]);
        let skews = [skew, self.store_skew];
        self.tell(format_args!("node {} is born, clocks wrong by {skews:?}", self.born));
        self.members.push(Member {
            node,
            lease,
            limit,
            born: self.now,
            skew,
            has_odd_start: (skew, self.store_skew) != (0, 0),
            cut_off: false,
            is_well: false,
            pulse: None,
            is_active: false,
            flying: None,
            open: Vec::new(),
            for_the_store: 0,
            known_row: None,
            last_month: None,
            admitted: BTreeMap::new(),
        });
    }

    /// A node may start with a clock that is wrong. Where there is no other, one that is ahead by
    /// less than a month or behind within one would be believed.
    fn skew_at_birth(&mut self) -> i64 {
        if !self.random.one_in(4) || self.store_skew != 0 || self.latest_month().is_none() {
            return 0;
        }
        match self.engine.is_server() {
            true => self.random.pick(&[-86_400, -40, 3_600, 40 * 86_400]),
            false => self.random.pick(&[-86_400, 70 * 86_400, 4_000 * 86_400]),
        }
    }

    fn latest_month(&self) -> Option<Month> {
        self.members.iter().map(|member| member.node.calendar.latest()).max()
    }

    fn call(&mut self, at: usize) {
        let (passed, clock) = (self.passed(), self.clock(at));
        let (now, store_skew) = (self.true_now(), self.store_skew);
        let member = &mut self.members[at];
        let believed = member.node.calendar.now(passed);
        // Between the two seconds that clocks may differ by at a look, and what is let pass.
        let odd = (believed - now).abs() > 6 && !member.has_odd_start;
        assert!(!odd, "{believed} is believed at {now}, skews {} {store_skew}", member.skew);
        let month = member.node.calendar.month(believed, || passed);
        let step = match member.node.charge(&member.lease, month, clock) {
            Step::Wait if self.random.one_in(6) => {
                let hangs = self.random.one_in(4);
                Step::Done(member.node.charge_late(&member.lease, month, hangs))
            }
            step => step,
        };
        match step {
            Step::Done(Ok(spent)) => self.admit(at, spent),
            Step::Done(Err(Denied::Exhausted | Denied::Store)) | Step::Wait => {}
        }
    }

    fn admit(&mut self, at: usize, spent: Spent) {
        let (month, blind) = (spent.month(), spent.blind);
        let member = &mut self.members[at];
        assert!(member.last_month <= Some(month), "a month reopened");
        member.last_month = Some(month);
        *member.admitted.entry(month).or_default() += 1;
        if self.random.one_in(4) {
            member.open.push(spent);
        }
        // A clock that is wrong brings no month forward.
        assert!(month <= Month::containing(self.true_now() + 6), "{month} has not begun");
        let limit = self.limit_in_force().map(|limit| limit + self.slack(limit));
        let tally = self.tally.entry(month).or_default();
        tally.gross += 1;
        tally.net += 1;
        tally.blind += u64::from(blind);
        let most = limit.map_or(u64::MAX, |limit| limit + tally.blind + tally.uncovered);
        assert!(blind || tally.net <= most, "{} admitted, where {most} may be", tally.net);
    }

    /// The highest limit that some node may rightly apply.
    fn limit_in_force(&self) -> Option<u64> {
        let oldest = self.members.iter().map(|member| member.limit).min().unwrap_or(0);
        self.limits[oldest..].iter().try_fold(0, |most, limit| match limit {
            LimitRow::Calls(calls) => Some(most.max(*calls)),
            LimitRow::Unlimited => None,
        })
    }

    /// When a limit is raised and lowered again, nodes that saw the raise may have spent it before
    /// others have seen either: these may still spend what they hold.
    fn slack(&self, limit: u64) -> u64 {
        let raised =
            self.limits.iter().any(|other| calls(*other).is_none_or(|calls| calls > limit));
        let held = |member: &Member| bound(calls(self.limits[member.limit]));
        if raised { self.members.iter().map(held).sum() } else { 0 }
    }

    fn give_back(&mut self, at: usize) {
        let member = &mut self.members[at];
        if member.open.is_empty() {
            return;
        }
        let spent = member.open.swap_remove(self.random.below(member.open.len() as u64) as usize);
        let (month, blind) = (spent.month(), spent.blind);
        let row = member.lease.stakes().3;
        if member.node.give_back(&member.lease, spent) {
            // What the purse has no room for is the store's, once it has heard of it.
            member.for_the_store += row - member.lease.stakes().3 + u64::from(blind);
            *member.admitted.entry(month).or_default() -= 1;
            let tally = self.tally.entry(month).or_default();
            tally.net -= 1;
            tally.blind -= u64::from(blind);
        }
    }

    /// As the worker does: its pulse first if it was not well, then what is wanted.
    fn speak(&mut self, at: usize, occasion: Occasion) {
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

    fn send(&mut self, at: usize, occasion: Occasion) {
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

    fn tick(&mut self, at: usize) {
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
    fn take_pulse(&mut self, at: usize) -> Option<bool> {
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
    fn arrive(&mut self, at: usize) {
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

    fn answer(
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

    fn fail(&mut self, at: usize, batch: Batch) {
        self.answer(at, batch, Err(failure()));
        self.members[at].node.want(&self.members[at].lease);
    }

    fn arrive_late(&mut self) {
        if !self.late.is_empty() {
            let one = self.random.below(self.late.len() as u64) as usize;
            let letter = self.late.swap_remove(one);
            drop(self.apply(&letter));
        }
    }

    fn apply(&mut self, letter: &Letter) -> Result<Vec<Option<Standing>>, StoreError> {
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

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        let over = |since: &u64| self.now - since >= RESTATEMENT;
        let ended: Vec<Month> =
            self.account_settles.iter().filter(|(_, since)| over(since)).map(|(m, _)| *m).collect();
        for month in ended {
            self.account_settles.remove(&month);
            self.engine.end_settling(&self.account, month);
        }
    }

    /// As kill -9 does.
    fn crash(&mut self, at: usize) {
        let member = self.members.swap_remove(at);
        self.tell(format_args!("node {} dies", member.node.id[0]));
        self.late.extend(member.flying.as_ref().map(|flight| flight.letter.clone()));
        self.dead.push(member);
        self.be_born();
    }

    /// As SIGTERM does; without an answer it is as good as a crash.
    fn end(&mut self, at: usize) {
        if self.members[at].flying.is_none() && self.take_pulse(at).is_some() {
            self.send(at, Occasion::Close);
            if let Some(flight) = self.members[at].flying.take() {
                drop(self.apply(&flight.letter));
            }
        }
        self.crash(at);
    }

    fn change_limit(&mut self) {
        let limit = match self.random.one_in(8) {
            true => LimitRow::Unlimited,
            false => LimitRow::Calls(self.random.pick(&[0, 1, 9, 50, 100, 130, 200, 350])),
        };
        self.tell(format_args!("the limit becomes {limit:?}"));
        self.limits.push(limit);
    }

    fn learn(&mut self, at: usize) {
        let member = &mut self.members[at];
        if member.limit + 1 < self.limits.len() {
            member.limit += 1;
            member.node.lease(&self.account, self.limits[member.limit]);
        }
    }

    /// Never for as long as it takes to be believed, and never both clocks of a node at once.
    fn step_clock(&mut self, at: usize) {
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
    fn befall_the_store(&mut self) {
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

    fn restart(&mut self, how: &str) {
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

    fn lose(&mut self, month: Month, copy: Copy) {
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

    // --- what must hold ---

    fn check(&mut self) {
        for at in 0..self.members.len() {
            let member = &self.members[at];
            let (month, held, limits, row) = member.lease.stakes();
            let most = limits.iter().map(|limit| bound(*limit)).max().unwrap_or(0);
            assert!(held <= most, "{held} held or asked for, where {most} may be");
            // The store is asked only when it may have heard something new.
            let known = Some((month, row)) == member.known_row;
            if let Some(month) = Month::from_number(month).filter(|_| month > 0 && !known) {
                let stored = self.engine.row(&self.account, month, &member.node.id);
                let member = &mut self.members[at];
                member.known_row = Some((month.number(), row));
                assert!(
                    self.loses || row <= stored,
                    "{row} may be spent, the store knows {stored}"
                );
            }
        }
    }

    /// All faults are over: everybody is told everything, and the rest of the limit is spent.
    fn come_to_rest(&mut self) {
        self.store_skew = 0;
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            (member.cut_off, member.skew) = (false, 0);
        }
        while self.members.iter().any(|member| member.limit + 1 < self.limits.len()) {
            (0..self.members.len()).for_each(|at| self.learn(at));
        }
        self.pass(2 * RESTATEMENT);
        let mut refused_rounds = 0;
        for _ in 0..400 {
            let before = self.gross();
            for at in 0..self.members.len() {
                for _ in 0..200 {
                    let seen = self.gross();
                    self.call(at);
                    self.settle(at, Occasion::Wanted);
                    if seen == self.gross() {
                        self.call(at);
                        if seen == self.gross() {
                            break;
                        }
                    }
                }
            }
            let all_arrived = self.late.is_empty();
            self.arrive_late();
            self.pass(1_100);
            (0..self.members.len()).for_each(|at| self.settle(at, Occasion::Tick));
            self.pass(600);
            (0..self.members.len()).for_each(|at| self.settle(at, Occasion::Tick));
            refused_rounds =
                if before == self.gross() && all_arrived { refused_rounds + 1 } else { 0 };
            let enough = self.limits.last() == Some(&LimitRow::Unlimited);
            if refused_rounds >= 3 || enough && all_arrived {
                break;
            }
        }
        for at in 0..self.members.len() {
            self.settle(at, Occasion::Tick);
            self.settle(at, Occasion::Tick);
        }
    }

    fn gross(&self) -> u64 {
        self.tally.values().map(|tally| tally.gross).sum()
    }

    /// Says what there is to say, over a network that works.
    fn settle(&mut self, at: usize, occasion: Occasion) {
        for _ in 0..4 {
            match occasion {
                Occasion::Tick => self.tick(at),
                occasion => self.speak(at, occasion),
            }
            let Some(flight) = self.members[at].flying.take() else { return };
            let standings = self.apply(&flight.letter);
            self.answer(at, flight.batch, standings);
        }
    }

    fn check_the_end(&mut self) {
        let month = self.tally.keys().next_back().copied();
        let most_held = self.limits.iter().map(|limit| bound(calls(*limit))).max().unwrap_or(0);
        let months: Vec<Month> = self.tally.keys().copied().collect();
        for month in months {
            let (spent, _) = self.engine.usage(&self.account, month);
            let gross = self.tally[&month].gross;
            assert!(spent <= gross, "usage says {spent}, but {gross} were admitted in {month}");
        }
        let (Some(month), Some(limit), false) =
            (month, calls(self.limits[self.limits.len() - 1]), self.loses)
        else {
            return;
        };
        let mut lost = 0;
        for member in std::mem::take(&mut self.dead) {
            let row = self.engine.row(&self.account, month, &member.node.id);
            let here = row.saturating_sub(member.admitted.get(&month).copied().unwrap_or(0));
            let most = most_held + member.for_the_store;
            assert!(here <= most, "a crash lost {here}, where {most} may be");
            lost += here;
        }
        let net = self.tally[&month].net;
        assert!(net + lost >= limit, "{net} admitted and {lost} lost of {limit}");
    }

    // --- time ---

    fn true_now(&self) -> i64 {
        self.began + self.passed()
    }

    fn passed(&self) -> i64 {
        (self.now / 1_000) as i64
    }

    fn clock(&self, at: usize) -> u64 {
        self.now - self.members[at].born + 1
    }
}

fn calls(limit: LimitRow) -> Option<u64> {
    match limit {
        LimitRow::Calls(calls) => Some(calls),
        LimitRow::Unlimited => None,
    }
}

/// The contract's: the unspent calls that one process holds or asks for.
fn bound(limit: Option<u64>) -> u64 {
    limit.map_or(64, |limit| (limit / 100).clamp(1, 64))
}

fn failure() -> StoreError {
    StoreError::Conflict("the network".to_owned())
}
