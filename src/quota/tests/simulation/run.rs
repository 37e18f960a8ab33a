//! One life: some nodes, one account, one store, and what befalls them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::engine::Copy;
use super::random::Random;
use super::sabotage::{Sabotage, SabotagedStore};
use crate::model::month::Month;
use crate::quota::calendar::Calendar;
use crate::quota::lease::{Lease, Spent};
use crate::quota::lease_report::Occasion;
use crate::quota::node::{Batch, Node, Step};
use crate::quota::{Denied, OnFailure};
use crate::store::{LimitRow, Pulse, Statement, StoreError};

/// The last second of November 2026.
const END: i64 = 1_796_083_199;
/// As in the script: for so long after a loss nothing is granted.
pub(super) const RESTATEMENT: u64 = 3_000;

/// A process run.
pub(super) struct Member {
    pub(super) node: Node,
    pub(super) lease: Arc<Lease>,
    /// The version of the limit that it knows.
    pub(super) limit: usize,
    pub(super) born: u64,
    /// Its clock is wrong by so many seconds.
    pub(super) skew: i64,
    /// It could not know better at its start: the time may be wrong, the month is not.
    pub(super) has_odd_start: bool,
    pub(super) cut_off: bool,
    pub(super) is_well: bool,
    pub(super) pulse: Option<Pulse>,
    pub(super) is_active: bool,
    pub(super) flying: Option<Flight>,
    /// Calls that may still be given back.
    pub(super) open: Vec<Spent>,
    /// Calls that were given back and that the store may not have heard of.
    pub(super) for_the_store: u64,
    /// What may be spent, as it was when the store was last asked whether it knows.
    pub(super) known_row: Option<(u16, u64)>,
    pub(super) last_month: Option<Month>,
    /// What it has admitted with a lease, less what it took back.
    pub(super) admitted: BTreeMap<Month, u64>,
}

/// Statements under way, and who waits for the answer.
pub(super) struct Flight {
    pub(super) batch: Batch,
    pub(super) letter: Letter,
}

/// Statements as the network has them.
#[derive(Clone)]
pub(super) struct Letter {
    pub(super) node: [u8; 16],
    pub(super) month: Month,
    pub(super) settle: u64,
    pub(super) statements: Vec<Statement>,
}

/// What happened in a month, over all nodes that ever were.
#[derive(Default)]
pub(super) struct Tally {
    /// Admitted at any time, given back or not.
    pub(super) gross: u64,
    /// Admitted and not given back.
    pub(super) net: u64,
    /// Of these, without the store's word.
    pub(super) blind: u64,
    /// What a store that lost its numbers may cost: spent, but known to nobody who lives.
    pub(super) uncovered: u64,
}

pub struct World<'e> {
    pub(super) random: Random,
    pub(super) engine: &'e mut SabotagedStore,
    pub(super) account: String,
    pub(super) tells: bool,
    pub(super) on_failure: OnFailure,
    /// Milliseconds since the life began, and the second in which it did.
    pub(super) now: u64,
    pub(super) began: i64,
    /// The server's clock is wrong by so many seconds; never while one of a node is.
    pub(super) store_skew: i64,
    pub(super) members: Vec<Member>,
    pub(super) born: u64,
    /// Gone without a farewell.
    pub(super) dead: Vec<Member>,
    /// Requests that nobody waits for any more; they may still arrive.
    pub(super) late: Vec<Letter>,
    pub(super) limits: Vec<LimitRow>,
    pub(super) tally: BTreeMap<Month, Tally>,
    /// Which life of the store it is, and until when all accounts settle.
    pub(super) incarnation: u32,
    pub(super) settling_until: u64,
    pub(super) account_settles: BTreeMap<Month, u64>,
    pub(super) loses: bool,
    pub(super) copy: Copy,
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

    pub(super) fn tell(&self, what: std::fmt::Arguments<'_>) {
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

    pub(super) fn event(&mut self) {
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

    pub(super) fn be_born(&mut self) {
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
    pub(super) fn skew_at_birth(&mut self) -> i64 {
        if !self.random.one_in(4) || self.store_skew != 0 || self.latest_month().is_none() {
            return 0;
        }
        match self.engine.is_server() {
            true => self.random.pick(&[-86_400, -40, 3_600, 40 * 86_400]),
            false => self.random.pick(&[-86_400, 70 * 86_400, 4_000 * 86_400]),
        }
    }

    pub(super) fn latest_month(&self) -> Option<Month> {
        self.members.iter().map(|member| member.node.calendar.latest()).max()
    }

    pub(super) fn call(&mut self, at: usize) {
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

    pub(super) fn admit(&mut self, at: usize, spent: Spent) {
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
    pub(super) fn limit_in_force(&self) -> Option<u64> {
        let oldest = self.members.iter().map(|member| member.limit).min().unwrap_or(0);
        self.limits[oldest..].iter().try_fold(0, |most, limit| match limit {
            LimitRow::Calls(calls) => Some(most.max(*calls)),
            LimitRow::Unlimited => None,
        })
    }

    /// When a limit is raised and lowered again, nodes that saw the raise may have spent it before
    /// others have seen either: these may still spend what they hold.
    pub(super) fn slack(&self, limit: u64) -> u64 {
        let raised =
            self.limits.iter().any(|other| calls(*other).is_none_or(|calls| calls > limit));
        let held = |member: &Member| bound(calls(self.limits[member.limit]));
        if raised { self.members.iter().map(held).sum() } else { 0 }
    }

    pub(super) fn give_back(&mut self, at: usize) {
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

    pub(super) fn pass(&mut self, ms: u64) {
        self.now += ms;
        let over = |since: &u64| self.now - since >= RESTATEMENT;
        let ended: Vec<Month> =
            self.account_settles.iter().filter(|(_, since)| over(since)).map(|(m, _)| *m).collect();
        for month in ended {
            self.account_settles.remove(&month);
            self.engine.end_settling(&self.account, month);
        }
    }

    pub(super) fn change_limit(&mut self) {
        let limit = match self.random.one_in(8) {
            true => LimitRow::Unlimited,
            false => LimitRow::Calls(self.random.pick(&[0, 1, 9, 50, 100, 130, 200, 350])),
        };
        self.tell(format_args!("the limit becomes {limit:?}"));
        self.limits.push(limit);
    }

    pub(super) fn learn(&mut self, at: usize) {
        let member = &mut self.members[at];
        if member.limit + 1 < self.limits.len() {
            member.limit += 1;
            member.node.lease(&self.account, self.limits[member.limit]);
        }
    }

    // --- time ---

    pub(super) fn true_now(&self) -> i64 {
        self.began + self.passed()
    }

    pub(super) fn passed(&self) -> i64 {
        (self.now / 1_000) as i64
    }

    pub(super) fn clock(&self, at: usize) -> u64 {
        self.now - self.members[at].born + 1
    }
}

pub(super) fn calls(limit: LimitRow) -> Option<u64> {
    match limit {
        LimitRow::Calls(calls) => Some(calls),
        LimitRow::Unlimited => None,
    }
}

/// The contract's: the unspent calls that one process holds or asks for.
pub(super) fn bound(limit: Option<u64>) -> u64 {
    limit.map_or(64, |limit| (limit / 100).clamp(1, 64))
}

pub(super) fn failure() -> StoreError {
    StoreError::Conflict("the network".to_owned())
}
