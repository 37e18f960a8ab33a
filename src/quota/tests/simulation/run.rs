//! One life: some nodes, one account, one store, and what befalls them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::engine::LedgerSnapshot;
use super::random::Random;
use super::sabotage::{Sabotage, SabotagedStore};
use crate::model::month::Month;
use crate::quota::calendar::Calendar;
use crate::quota::lease::{Charge, Lease};
use crate::quota::lease_report::ReportReason;
use crate::quota::node::{Batch, ChargeProgress, Node};
use crate::quota::{Denial, FailurePolicy};
use crate::store::{LeaseReport, MonthlyLimit, Probe, StoreError};

/// The last second of November 2026.
const END: i64 = 1_796_083_199;
/// As in the script: for so long after a loss nothing is granted.
pub(super) const RESTATEMENT: u64 = 3_000;

/// A process run.
pub(super) struct SimulatedNode {
    pub(super) node: Node,
    pub(super) lease: Arc<Lease>,
    /// The version of the limit that it knows.
    pub(super) limit: usize,
    pub(super) started_at: u64,
    /// Its clock is wrong by so many seconds.
    pub(super) skew: i64,
    /// It could not know better at its start: the time may be wrong, the month is not.
    pub(super) has_odd_start: bool,
    pub(super) cut_off: bool,
    pub(super) is_healthy: bool,
    pub(super) pulse: Option<Probe>,
    pub(super) is_active: bool,
    pub(super) in_flight: Option<InFlight>,
    /// Calls that may still be given back.
    pub(super) refundable: Vec<Charge>,
    /// Calls that were given back and that the store may not have heard of.
    pub(super) refunded_unreported: u64,
    /// What may be spent, as it was when the store was last asked whether it knows.
    pub(super) known_row: Option<(u16, u64)>,
    pub(super) last_month: Option<Month>,
    /// What it has admitted with a lease, less what it took back.
    pub(super) admitted: BTreeMap<Month, u64>,
}

/// Statements under way, and who waits for the answer.
pub(super) struct InFlight {
    pub(super) batch: Batch,
    pub(super) letter: Message,
}

/// Statements as the network has them.
#[derive(Clone)]
pub(super) struct Message {
    pub(super) node: [u8; 16],
    pub(super) month: Month,
    pub(super) settle: u64,
    pub(super) statements: Vec<LeaseReport>,
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

pub struct Simulation<'e> {
    pub(super) random: Random,
    pub(super) engine: &'e mut SabotagedStore,
    pub(super) account: String,
    pub(super) tells: bool,
    pub(super) on_failure: FailurePolicy,
    /// Milliseconds since the life began, and the second in which it did.
    pub(super) now: u64,
    pub(super) began: i64,
    /// The server's clock is wrong by so many seconds; never while one of a node is.
    pub(super) store_skew: i64,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) started_at: u64,
    /// Gone without a farewell.
    pub(super) dead: Vec<SimulatedNode>,
    /// Requests that nobody waits for any more; they may still arrive.
    pub(super) late: Vec<Message>,
    pub(super) limits: Vec<MonthlyLimit>,
    pub(super) tally: BTreeMap<Month, Tally>,
    /// Which life of the store it is, and until when all accounts settle.
    pub(super) incarnation: u32,
    pub(super) recovering_until: u64,
    pub(super) account_recovering_since: BTreeMap<Month, u64>,
    pub(super) store_may_lose_data: bool,
    pub(super) copy: LedgerSnapshot,
}

impl<'e> Simulation<'e> {
    pub fn new(seed: u64, engine: &'e mut SabotagedStore, tells: bool) -> Simulation<'e> {
        let mut random = Random(seed);
        let limit = match random.below(24) {
            0 => MonthlyLimit::Unlimited,
            1 => MonthlyLimit::Calls(random.pick(&[600, 1_500])),
            _ => {
                MonthlyLimit::Calls(random.pick(&[0, 1, 2, 5, 10, 40, 60, 99, 100, 101, 130, 250]))
            }
        };
        let began = match random.one_in(3) {
            true => END - random.below(60) as i64,
            false => END - 864_000,
        };
        let on_failure = if random.one_in(3) { FailurePolicy::Open } else { FailurePolicy::Closed };
        let loses = engine.is_server() && random.one_in(3);
        let mut world = Simulation {
            random,
            account: format!("seed-{seed}"),
            engine,
            tells,
            on_failure,
            now: 0,
            began,
            store_skew: 0,
            nodes: Vec::new(),
            started_at: 0,
            dead: Vec::new(),
            late: Vec::new(),
            limits: vec![limit],
            tally: BTreeMap::new(),
            incarnation: 0,
            recovering_until: 0,
            account_recovering_since: BTreeMap::new(),
            store_may_lose_data: loses,
            copy: LedgerSnapshot::new(),
        };
        for _ in 0..=world.random.below(4) {
            world.start_node();
        }
        world.trace(format_args!("limit {limit:?}, {on_failure:?}, loses {loses}"));
        world
    }

    pub(super) fn trace(&self, what: std::fmt::Arguments<'_>) {
        if self.tells {
            println!("{:>7} ms  {what}", self.now);
        }
    }

    /// Lives until the end, and checks all that must hold.
    pub fn run(mut self) {
        for _ in 0..40 + self.random.below(160) {
            self.run_random_event();
            self.check_invariants();
        }
        self.quiesce();
        self.check_final_state();
        let months: Vec<Month> = self.tally.keys().copied().collect();
        for month in months {
            self.engine.end_recovery(&self.account, month);
            self.engine.restore_snapshot(&self.account, month, &LedgerSnapshot::new());
        }
    }

    // --- what happens ---

    pub(super) fn run_random_event(&mut self) {
        let at = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(100) {
            0..35 => {
                for _ in 0..=self.random.below(12) {
                    self.call(at);
                }
            }
            35..41 => self.refund(at),
            41..63 => self.speak(at, ReportReason::CallsNeeded),
            63..70 => self.tick(at),
            70..82 => self.resolve_in_flight(at),
            82..85 => self.deliver_late_message(),
            85..91 => {
                let longest = self.random.pick(&[20, 200, 1_500]);
                let ms = 1 + self.random.below(longest);
                self.advance_time(ms);
            }
            91..93 => self.nodes[at].cut_off = !self.nodes[at].cut_off,
            93 => self.crash_node(at),
            94 => self.stop_node(at),
            95 => self.change_limit(),
            96..98 => self.apply_next_limit(at),
            98 => self.step_clock(at),
            _ => self.disturb_store(),
        }
    }

    pub(super) fn start_node(&mut self) {
        self.started_at += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.started_at.to_le_bytes());
        let skew = self.skew_at_start();
        let (now, passed) = (self.true_now(), self.passed());
        let (machine_now, store_now) = (now + skew, now + self.store_skew);
        let (mut known, mut second) = (self.latest_month(), machine_now);
        if self.engine.is_sabotaged_by(Sabotage::TrustAnyClock) {
            known = known.max(Some(Month::containing(machine_now)));
            second = store_now;
        }
        let calendar = Calendar::new(known, machine_now, passed);
        if self.engine.is_server() {
            calendar.observe_store_clock(store_now, second, passed);
        }
        let node = Node::new(id, calendar, self.on_failure, 1_000_000);
        let limit = self.limits.len() - 1;
        let lease = node.lease(&self.account, self.limits[limit]);
        let skews = [skew, self.store_skew];
        self.trace(format_args!("node {} is born, clocks wrong by {skews:?}", self.started_at));
        self.nodes.push(SimulatedNode {
            node,
            lease,
            limit,
            started_at: self.now,
            skew,
            has_odd_start: (skew, self.store_skew) != (0, 0),
            cut_off: false,
            is_healthy: false,
            pulse: None,
            is_active: false,
            in_flight: None,
            refundable: Vec::new(),
            refunded_unreported: 0,
            known_row: None,
            last_month: None,
            admitted: BTreeMap::new(),
        });
    }

    /// A node may start with a clock that is wrong. Where there is no other, one that is ahead by
    /// less than a month or behind within one would be believed.
    pub(super) fn skew_at_start(&mut self) -> i64 {
        if !self.random.one_in(4) || self.store_skew != 0 || self.latest_month().is_none() {
            return 0;
        }
        match self.engine.is_server() {
            true => self.random.pick(&[-86_400, -40, 3_600, 40 * 86_400]),
            false => self.random.pick(&[-86_400, 70 * 86_400, 4_000 * 86_400]),
        }
    }

    pub(super) fn latest_month(&self) -> Option<Month> {
        self.nodes.iter().map(|member| member.node.calendar.latest_month()).max()
    }

    pub(super) fn call(&mut self, at: usize) {
        let (passed, clock) = (self.passed(), self.clock(at));
        let (now, store_skew) = (self.true_now(), self.store_skew);
        let member = &mut self.nodes[at];
        let believed = member.node.calendar.now(passed);
        // Between the two seconds that clocks may differ by at a look, and what is let pass.
        let odd = (believed - now).abs() > 6 && !member.has_odd_start;
        assert!(!odd, "{believed} is believed at {now}, skews {} {store_skew}", member.skew);
        let month = member.node.calendar.month_at(believed, || passed);
        let step = match member.node.charge(&member.lease, month, clock) {
            ChargeProgress::Wait if self.random.one_in(6) => {
                let hangs = self.random.one_in(4);
                ChargeProgress::Done(member.node.charge_after_timeout(&member.lease, month, hangs))
            }
            step => step,
        };
        match step {
            ChargeProgress::Done(Ok(spent)) => self.admit(at, spent),
            ChargeProgress::Done(Err(Denial::Exhausted | Denial::Store)) | ChargeProgress::Wait => {
            }
        }
    }

    pub(super) fn admit(&mut self, at: usize, spent: Charge) {
        let (month, blind) = (spent.month(), spent.is_unbacked);
        let member = &mut self.nodes[at];
        assert!(member.last_month <= Some(month), "a month reopened");
        member.last_month = Some(month);
        *member.admitted.entry(month).or_default() += 1;
        if self.random.one_in(4) {
            member.refundable.push(spent);
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
        let oldest = self.nodes.iter().map(|member| member.limit).min().unwrap_or(0);
        self.limits[oldest..].iter().try_fold(0, |most, limit| match limit {
            MonthlyLimit::Calls(calls) => Some(most.max(*calls)),
            MonthlyLimit::Unlimited => None,
        })
    }

    /// When a limit is raised and lowered again, nodes that saw the raise may have spent it before
    /// others have seen either: these may still spend what they hold.
    pub(super) fn slack(&self, limit: u64) -> u64 {
        let raised =
            self.limits.iter().any(|other| calls(*other).is_none_or(|calls| calls > limit));
        let held = |member: &SimulatedNode| bound(calls(self.limits[member.limit]));
        if raised { self.nodes.iter().map(held).sum() } else { 0 }
    }

    pub(super) fn refund(&mut self, at: usize) {
        let member = &mut self.nodes[at];
        if member.refundable.is_empty() {
            return;
        }
        let spent = member
            .refundable
            .swap_remove(self.random.below(member.refundable.len() as u64) as usize);
        let (month, blind) = (spent.month(), spent.is_unbacked);
        let row = member.lease.exposure().3;
        if member.node.refund(&member.lease, spent) {
            // What the purse has no room for is the store's, once it has heard of it.
            member.refunded_unreported += row - member.lease.exposure().3 + u64::from(blind);
            *member.admitted.entry(month).or_default() -= 1;
            let tally = self.tally.entry(month).or_default();
            tally.net -= 1;
            tally.blind -= u64::from(blind);
        }
    }

    pub(super) fn advance_time(&mut self, ms: u64) {
        self.now += ms;
        let over = |since: &u64| self.now - since >= RESTATEMENT;
        let ended: Vec<Month> = self
            .account_recovering_since
            .iter()
            .filter(|(_, since)| over(since))
            .map(|(m, _)| *m)
            .collect();
        for month in ended {
            self.account_recovering_since.remove(&month);
            self.engine.end_recovery(&self.account, month);
        }
    }

    pub(super) fn change_limit(&mut self) {
        let limit = match self.random.one_in(8) {
            true => MonthlyLimit::Unlimited,
            false => MonthlyLimit::Calls(self.random.pick(&[0, 1, 9, 50, 100, 130, 200, 350])),
        };
        self.trace(format_args!("the limit becomes {limit:?}"));
        self.limits.push(limit);
    }

    pub(super) fn apply_next_limit(&mut self, at: usize) {
        let member = &mut self.nodes[at];
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
        self.now - self.nodes[at].started_at + 1
    }
}

pub(super) fn calls(limit: MonthlyLimit) -> Option<u64> {
    match limit {
        MonthlyLimit::Calls(calls) => Some(calls),
        MonthlyLimit::Unlimited => None,
    }
}

/// The contract's: the unspent calls that one process holds or asks for.
pub(super) fn bound(limit: Option<u64>) -> u64 {
    limit.map_or(64, |limit| (limit / 100).clamp(1, 64))
}

pub(super) fn failure() -> StoreError {
    StoreError::Conflict("the network".to_owned())
}
