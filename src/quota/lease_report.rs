//! What an account's lease tells the store, and what it makes of the replies.
//!
//! Values only: the worker carries the statements.

use super::accounting::{FinalReport, LeaseAccounting, PendingReport};
use super::atomic_lease::AtomicLease;
use super::packed_lease::held_limit;
use crate::model::month::Month;
use crate::store::{Grant, KnownState, LeaseReport};

/// A lease is not smaller than this, as far as the bound allows.
const MIN_LEASE_CALLS: u64 = 8;

/// A lease should last for so many seconds at the rate at which calls come, within the bound.
const LEASE_SECONDS: u64 = 4;

/// What is left must last for so many seconds, or more is asked for at once.
const URGENT_BELOW_SECONDS: f64 = 0.05;

/// Why the worker looks at a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportReason {
    /// A call needs more, or will soon.
    CallsNeeded,
    /// A second has passed.
    Tick,
    /// The process ends.
    Shutdown,
}

/// What a lease has to say to the store.
pub(super) struct Outgoing {
    /// The statement about the running month, if there is one to make.
    pub report: Option<LeaseReport>,
    /// Final statements about past months.
    pub final_reports: Vec<LeaseReport>,
}

/// What came of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GrantOutcome {
    /// Calls admitted blindly that the store now knows of.
    pub settled_calls: u64,
    /// Nothing was granted, though it was asked for.
    pub is_exhausted: bool,
    /// The store lost something and grants nothing yet.
    pub is_recovering: bool,
    /// From how many calls in hand on more should be asked for.
    pub low: u64,
    /// So many last for longer than [`URGENT_BELOW_SECONDS`], at the rate at which calls come.
    pub lasts: bool,
}

impl LeaseAccounting {
    /// Leaves a month that has not begun after all: a machine's clock was ahead before the store's
    /// was heard. Calls admitted in it count in the latest month. A month that the store may know
    /// of is kept.
    fn leave_future_month(&mut self, purse: &AtomicLease, latest: Month) {
        let is_told = self.leased > 0 || self.asked() > 0 || self.pending.is_some();
        if self.month <= latest.number() || is_told || !self.final_reports.is_empty() {
            return;
        }
        purse.start_month(u64::from(latest.number()), self.limit.unwrap_or(u64::MAX));
        (self.month, self.requested_month) = (latest.number(), latest.number());
    }

    /// What to say to the store now; at most one statement is under way.
    pub(super) fn say(
        &mut self,
        purse: &AtomicLease,
        account: &str,
        occasion: ReportReason,
        latest: Month,
    ) -> Outgoing {
        self.leave_future_month(purse, latest);
        self.requested_month = self.requested_month.min(latest.number());
        if let Some(month) = Month::from_number(self.requested_month) {
            self.enter(purse, month);
        }
        if self.month > 0 {
            // Also without a call: the last word on a month is not put off.
            self.enter(purse, latest);
        }
        let final_reports = self.final_reports(account);
        let statement = match Month::from_number(self.month).filter(|month| month.number() != 0) {
            Some(month) => self.next_report(purse, account, month, occasion),
            None => None,
        };
        Outgoing { report: statement, final_reports }
    }

    fn next_report(
        &mut self,
        purse: &AtomicLease,
        account: &str,
        month: Month,
        occasion: ReportReason,
    ) -> Option<LeaseReport> {
        let bound = held_limit(self.limit, self.leased_by_all());
        let spent_so_far = self.spent(purse);
        let idle = occasion == ReportReason::Tick && spent_so_far == self.spent_at_tick;
        if occasion == ReportReason::Tick {
            self.calls_per_second = spent_so_far.saturating_sub(self.spent_at_tick);
            self.spent_at_tick = spent_so_far;
        }
        let keep = if occasion == ReportReason::Shutdown || idle { 0 } else { bound };
        // Out of memory first, then stated: nothing of it is spent while the store thinks.
        self.returning += purse.withdraw_all_but(keep, false);
        let held = purse.load().held();
        let floor = self.leased - self.returning + self.unsettled;
        let spent = floor - held;
        let asked = match occasion {
            ReportReason::CallsNeeded => self.calls_to_request(bound, held, spent),
            ReportReason::Tick | ReportReason::Shutdown => 0,
        };
        // What was spent is published every second, and otherwise along with a wish.
        let publishes = occasion != ReportReason::CallsNeeded && self.reported_spent != Some(spent);
        if asked == 0 && self.returning == 0 && !publishes && !self.has_unsettled() {
            return None;
        }
        self.sequence += 1;
        self.pending = Some(PendingReport {
            month: self.month,
            sequence: self.sequence,
            floor,
            returning: self.returning,
            unsettled: self.unsettled,
            requested: asked,
            spent,
            limit: self.limit,
        });
        self.reported_spent = Some(spent);
        Some(LeaseReport {
            account: account.to_owned(),
            month,
            sequence: self.sequence,
            target: floor + asked,
            floor,
            spent,
            limit: self.limit,
            // Of all, with what was admitted since.
            known: KnownState {
                leased: floor.saturating_add(self.others_leased),
                spent: spent.saturating_add(self.others_spent),
                ..self.known
            },
        })
    }

    /// The store does not know of calls that were admitted without its word.
    fn has_unsettled(&self) -> bool {
        self.unsettled > 0
    }

    /// A lease grows with the rate of calls, within the bound, and is filled up at half.
    fn calls_to_request(&self, bound: u64, held: u64, spent: u64) -> u64 {
        let size = (LEASE_SECONDS * self.current_rate(spent)).max(MIN_LEASE_CALLS).min(bound);
        if held <= size / 2 { size - held } else { 0 }
    }

    /// Calls in a second: in the last one, or in this one so far if there are more of them already.
    fn current_rate(&self, spent: u64) -> u64 {
        self.calls_per_second.max(spent.saturating_sub(self.spent_at_tick))
    }

    fn final_reports(&mut self, account: &str) -> Vec<LeaseReport> {
        let (limit, sequence) = (self.limit, &mut self.sequence);
        let say = |&FinalReport { month, spent, .. }: &FinalReport| {
            *sequence += 1;
            LeaseReport {
                account: account.to_owned(),
                month,
                sequence: *sequence,
                target: spent,
                floor: spent,
                spent,
                limit,
                known: KnownState::default(),
            }
        };
        self.final_reports.iter().map(say).collect()
    }

    /// Takes the store's reply to the latest statement; any other is ignored. `publish_unleased` hears what
    /// lies beyond all leases, before anything can be spent on it.
    pub(super) fn reply(
        &mut self,
        purse: &AtomicLease,
        sequence: u64,
        standing: Grant,
        publish_unleased: impl FnOnce(u64),
    ) -> Option<GrantOutcome> {
        let pending = self.pending.take_if(|pending| pending.sequence == sequence)?;
        if pending.month != self.month {
            // Its month ended meanwhile; the farewell says and settles it all.
            return None;
        }
        if standing.own_leased < pending.floor {
            // What was admitted stands in every store that follows the rule: this word is about
            // something else, and nothing can be counted on it.
            self.mark_unanswered();
            return Some(GrantOutcome { is_recovering: true, ..GrantOutcome::default() });
        }
        let grown = standing.own_leased.saturating_sub(pending.floor);
        self.leased = standing.own_leased;
        self.maybe_granted = 0;
        self.returning -= pending.returning;
        self.unsettled -= pending.unsettled;
        self.update_known(&pending, standing);
        let limit = self.limit;
        let void = pending.limit != limit;
        let leased_by_all = standing.own_leased.saturating_add(self.others_leased);
        let beyond = limit.map_or(u64::MAX, |limit| limit.saturating_sub(leased_by_all));
        // Granted under a limit that is no longer in force, or before calls were admitted of which
        // the store does not know yet: not spendable.
        let room = limit.map_or(u64::MAX, |limit| {
            limit.saturating_sub(leased_by_all - grown).saturating_sub(self.unsettled)
        });
        let put = if void { 0 } else { grown.min(room) };
        self.returning += grown - put;
        let beyond = beyond.saturating_add(self.returning).saturating_sub(self.unsettled);
        publish_unleased(beyond);
        let held = purse.add_granted(put, beyond);
        // Half of a lease left is the moment to ask; of a lease of one there is no half.
        let low = if held_limit(limit, leased_by_all) == 1 { 0 } else { held / 2 };
        Some(GrantOutcome {
            settled_calls: pending.unsettled,
            is_exhausted: pending.requested > 0
                && grown == 0
                && held == 0
                && !void
                && !standing.is_recovering,
            is_recovering: standing.is_recovering,
            low,
            lasts: low as f64 > URGENT_BELOW_SECONDS * self.current_rate(pending.spent) as f64,
        })
    }

    /// Remembers what the store said. While it settles, what was known before may be more than
    /// what it knows: the higher one stands.
    fn update_known(&mut self, pending: &PendingReport, standing: Grant) {
        let (mut leased, mut spent) = (standing.others_leased, standing.others_spent);
        if standing.is_recovering {
            leased = leased.max(self.others_leased);
            spent = spent.max(self.others_spent);
        }
        self.others_leased = leased;
        self.others_spent = spent;
        self.known = KnownState {
            sequence: pending.sequence,
            revision: standing.revision,
            leased: standing.own_leased.saturating_add(leased),
            spent: pending.spent.saturating_add(spent),
        };
    }

    /// The statement's fate is unknown. Nothing changes: the next one names totals again.
    pub(super) fn mark_unanswered(&mut self) {
        self.maybe_granted = self.asked();
        self.pending = None;
        self.reported_spent = None;
    }

    /// The store may have lost what it was told: all of it is said once more, and what it told
    /// of others. True if there is anything to say.
    pub(super) fn restate(&mut self) -> bool {
        self.reported_spent = None;
        self.known.sequence > 0 || self.leased + self.unsettled > 0
    }

    /// The store took the last word on `month`; returns how many blind calls that settled.
    pub(super) fn confirm_final_report(&mut self, month: Month) -> u64 {
        let said = self.final_reports.iter().filter(|farewell| farewell.month == month);
        let settled = said.map(|farewell| farewell.unsettled).sum();
        self.final_reports.retain(|farewell| farewell.month != month);
        settled
    }
}
