//! The reports that a lease sends to the store, and how the lease applies the grants that come
//! back.
//!
//! Values only, no I/O: the worker sends the reports and receives the grants.

use super::accounting::{LeaseAccounting, PastMonthTotals, PendingReport};
use super::atomic_lease::AtomicLease;
use super::key_usage::UsageByKey;
use super::packed_lease::max_held_calls;
use crate::model::month::Month;
use crate::store::{Grant, LeaseReport, TotalsKnownToNode, UsageCount};

/// The fewest calls that a full lease holds, if [`max_held_calls`] allows that many.
const MIN_FULL_LEASE_CALLS: u64 = 8;

/// How long a full lease lasts at the current rate, within the two bounds.
const LEASE_SUPPLY_SECONDS: u64 = 4;

/// A request for calls is urgent if the calls then held last no longer than this.
const URGENT_SUPPLY_SECONDS: f64 = 0.05;

/// Why the worker collects reports from a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportReason {
    /// The lease was queued, mostly because a call needs a larger lease or soon will.
    CallsNeeded,
    /// A second has passed, or the store may have lost data: totals are published, and an idle
    /// lease returns its calls.
    Tick,
    /// An earlier report left out counts of usage by day, because its batch had too many.
    CountsLeft,
    /// The process shuts down.
    Shutdown,
}

/// The reports that a lease has for the store.
pub(super) struct OutgoingReports {
    /// The report about the current month, if there is anything to report.
    pub current_month_report: Option<LeaseReport>,
    /// Final reports about past months.
    pub final_reports: Vec<LeaseReport>,
    /// The report about the current month leaves out counts that the store has not acknowledged.
    pub has_more_counts: bool,
}

impl OutgoingReports {
    /// Lets the report about the current month carry the counts, so that the store acknowledges
    /// both together. If there is no such report, a later one carries the counts. `are_all` says
    /// whether they are all that the store has not acknowledged.
    pub(super) fn attach_usage(
        &mut self,
        counts: Vec<UsageCount>,
        are_all: bool,
        usage: &UsageByKey,
    ) {
        if let Some(report) = &mut self.current_month_report {
            usage.note_in_flight(&counts);
            report.usage = counts;
            self.has_more_counts = !are_all;
        }
    }
}

/// The result of applying a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GrantOutcome {
    /// Unbacked calls that the store now counts.
    pub settled_calls: u64,
    /// The lease requested calls, got none and holds none. Other nodes may still hold some.
    pub is_exhausted: bool,
    /// The store lost data and grants nothing until it has recovered, or this grant is invalid.
    pub is_recovering: bool,
    /// More calls are requested once this many or fewer are held.
    pub refill_threshold: u64,
    /// At the current rate, `refill_threshold` calls last longer than [`URGENT_SUPPLY_SECONDS`].
    pub refill_can_wait: bool,
}

impl LeaseAccounting {
    /// Moves the lease back to `latest_month` if its month has not begun: this machine's clock was
    /// ahead until the store's clock was read. Calls admitted in the wrong month then count in
    /// `latest_month`. If the store may already have calls of the wrong month, or if past months
    /// are still to report, the lease stays in its month.
    fn leave_future_month(&mut self, atomic_lease: &AtomicLease, latest_month: Month) {
        let may_be_in_store =
            self.own_leased > 0 || self.calls_requested() > 0 || self.pending_report.is_some();
        let has_past_months = !self.past_months_to_report.is_empty();
        if self.month <= latest_month.number() || may_be_in_store || has_past_months {
            return;
        }
        atomic_lease.start_month_and_drop_held(
            u64::from(latest_month.number()),
            self.limit.unwrap_or(u64::MAX),
        );
        (self.month, self.requested_month) = (latest_month.number(), latest_month.number());
    }

    /// Moves to the month that has begun, if needed, and builds the reports to send to the store
    /// now: at most one about the current month, and one for each past month whose final totals the
    /// store has not accepted.
    pub(super) fn prepare_reports(
        &mut self,
        atomic_lease: &AtomicLease,
        account: &str,
        reason: ReportReason,
        latest_month: Month,
    ) -> OutgoingReports {
        self.leave_future_month(atomic_lease, latest_month);
        self.requested_month = self.requested_month.min(latest_month.number());
        if let Some(month) = Month::from_number(self.requested_month) {
            self.enter_month(atomic_lease, month);
        }
        if self.month > 0 {
            // The final report on a month is due even if no call arrives in the month after it.
            self.enter_month(atomic_lease, latest_month);
        }
        let final_reports = self.build_past_month_reports(account);
        let report = match Month::from_number(self.month).filter(|month| month.number() != 0) {
            Some(month) => self.build_month_report(atomic_lease, account, month, reason),
            None => None,
        };
        OutgoingReports { current_month_report: report, final_reports, has_more_counts: false }
    }

    fn build_month_report(
        &mut self,
        atomic_lease: &AtomicLease,
        account: &str,
        month: Month,
        reason: ReportReason,
    ) -> Option<LeaseReport> {
        let max_held = max_held_calls(self.limit, self.leased_by_all());
        let spent_so_far = self.own_spent(atomic_lease);
        let is_idle = reason == ReportReason::Tick && spent_so_far == self.spent_at_last_tick;
        if reason == ReportReason::Tick {
            self.calls_per_second = spent_so_far.saturating_sub(self.spent_at_last_tick);
            self.spent_at_last_tick = spent_so_far;
        }
        let max_kept = match reason {
            ReportReason::Shutdown => 0,
            _ => self.wanted_calls.max(if is_idle { 0 } else { max_held }),
        };
        // Calls are withdrawn before the report returns them to the store, so that none of them is
        // spent while the report is in flight.
        self.calls_to_return += atomic_lease.withdraw_all_but(max_kept, false);
        let held = atomic_lease.load().held();
        let floor = self.own_leased - self.calls_to_return + self.unsettled_calls;
        let spent = floor - held;
        let requested = match reason {
            ReportReason::CallsNeeded => self.calls_to_request(max_held, held, spent),
            ReportReason::Tick | ReportReason::CountsLeft | ReportReason::Shutdown => 0,
        };
        // The spent total is published every second, and with every request for calls.
        let must_publish_spent =
            reason != ReportReason::CallsNeeded && self.reported_spent != Some(spent);
        // A batch that waits needs to know how many calls are left.
        if requested == 0
            && self.wanted_calls == 0
            && self.calls_to_return == 0
            && !must_publish_spent
            && self.unsettled_calls == 0
        {
            return None;
        }
        self.last_report_sequence += 1;
        self.pending_report = Some(PendingReport {
            month: self.month,
            sequence: self.last_report_sequence,
            leased_floor: floor,
            returned_calls: self.calls_to_return,
            unsettled_calls: self.unsettled_calls,
            requested_calls: requested,
            wanted_calls: self.wanted_calls,
            spent,
            limit: self.limit,
        });
        self.reported_spent = Some(spent);
        let known = self.note_report(floor, spent);
        Some(LeaseReport {
            account: account.to_owned(),
            month,
            sequence: self.last_report_sequence,
            target: floor + requested,
            floor,
            spent,
            limit: self.limit,
            known,
            usage: Vec::new(),
        })
    }

    /// Returns what this node knows, for a report of these totals, and notes that they are
    /// reported.
    fn note_report(&mut self, floor: u64, spent: u64) -> TotalsKnownToNode {
        // Totals over all nodes, plus the calls that this node admitted since the last grant.
        let known = TotalsKnownToNode {
            leased_by_all: floor.saturating_add(self.others_leased),
            spent_by_all: spent.saturating_add(self.others_spent),
            ..self.known
        };
        (self.known.reported_leased, self.known.reported_spent) = (floor, spent);
        known
    }

    /// Returns how many calls to request. A full lease lasts [`LEASE_SUPPLY_SECONDS`] at the
    /// current rate, but has at least [`MIN_FULL_LEASE_CALLS`] and never more than `max_held`. If
    /// at most half of a full lease is held, the lease lacks the rest; else it lacks nothing.
    ///
    /// If a batch waits, all calls that the batch lacks are requested at once. But if this node
    /// knows of fewer calls that are left, it requests only what the lease lacks; the store's reply
    /// then shows how many calls are left.
    fn calls_to_request(&self, max_held: u64, held: u64, spent: u64) -> u64 {
        let size = (LEASE_SUPPLY_SECONDS * self.current_calls_per_second(spent))
            .max(MIN_FULL_LEASE_CALLS)
            .min(max_held);
        let missing_of_lease = if held <= size / 2 { size - held } else { 0 };
        let missing_of_batch = self.wanted_calls.saturating_sub(held);
        match missing_of_batch <= self.unleased_calls() {
            true => missing_of_batch.max(missing_of_lease),
            false => missing_of_lease,
        }
    }

    /// The calls spent in the last full second, or those spent in the current second so far if that
    /// number is higher.
    fn current_calls_per_second(&self, spent: u64) -> u64 {
        self.calls_per_second.max(spent.saturating_sub(self.spent_at_last_tick))
    }

    /// Builds a report for each past month whose final totals the store has not accepted yet. Each
    /// report returns the unspent calls of its month to the store.
    fn build_past_month_reports(&mut self, account: &str) -> Vec<LeaseReport> {
        let (limit, sequence) = (self.limit, &mut self.last_report_sequence);
        let to_report = |&PastMonthTotals { month, spent, known, .. }: &PastMonthTotals| {
            *sequence += 1;
            LeaseReport {
                account: account.to_owned(),
                month,
                sequence: *sequence,
                target: spent,
                floor: spent,
                spent,
                limit,
                // Without what the store acknowledged: a final report starts no recovery.
                known: TotalsKnownToNode {
                    reported_leased: known.reported_leased,
                    reported_spent: known.reported_spent,
                    ..TotalsKnownToNode::default()
                },
                usage: Vec::new(),
            }
        };
        self.past_months_to_report.iter().map(to_report).collect()
    }

    /// Applies the store's grant for the report in flight. Returns `None`, and adds no calls, if
    /// the grant answers another report or if the month has ended since.
    ///
    /// `publish_unleased` receives the number of calls that no node has leased, before any of the
    /// granted calls can be spent.
    pub(super) fn apply_grant(
        &mut self,
        atomic_lease: &AtomicLease,
        sequence: u64,
        grant: Grant,
        publish_unleased: impl FnOnce(u64),
    ) -> Option<GrantOutcome> {
        let pending = self.pending_report.take_if(|pending| pending.sequence == sequence)?;
        if pending.month != self.month {
            // The month of the report has ended. Its final report settles everything.
            return None;
        }
        if grant.own_leased < pending.leased_floor {
            // A store never grants less than the floor of the report ([`Grant::decide_leased`]), so
            // nothing in this grant can be trusted.
            self.mark_report_unanswered();
            return Some(GrantOutcome { is_recovering: true, ..GrantOutcome::default() });
        }
        let granted = grant.own_leased.saturating_sub(pending.leased_floor);
        self.own_leased = grant.own_leased;
        self.maybe_granted = 0;
        self.calls_to_return -= pending.returned_calls;
        self.unsettled_calls -= pending.unsettled_calls;
        self.record_store_totals(&pending, grant);
        let limit = self.limit;
        let limit_changed = pending.limit != limit;
        let leased_by_all = grant.own_leased.saturating_add(self.others_leased);
        let unleased = limit.map_or(u64::MAX, |limit| limit.saturating_sub(leased_by_all));
        // If the limit has changed since the report, no granted call can be spent. Unbacked calls
        // admitted since the report use up granted calls. Granted calls that can't be spent are
        // returned to the store.
        let headroom = limit.map_or(u64::MAX, |limit| {
            limit.saturating_sub(leased_by_all - granted).saturating_sub(self.unsettled_calls)
        });
        // If a batch has ended since the report, the calls for it are surplus.
        let max_added = match pending.wanted_calls > self.wanted_calls {
            true => max_held_calls(limit, leased_by_all)
                .max(self.wanted_calls)
                .saturating_sub(atomic_lease.load().held()),
            false => u64::MAX,
        };
        let spendable = if limit_changed { 0 } else { granted.min(headroom).min(max_added) };
        self.calls_to_return += granted - spendable;
        let unleased =
            unleased.saturating_add(self.calls_to_return).saturating_sub(self.unsettled_calls);
        publish_unleased(unleased);
        let held = atomic_lease.add_granted(spendable, unleased);
        let is_answer_final = !limit_changed && !grant.is_recovering;
        self.is_batch_denied = is_answer_final && self.wanted_calls > held.saturating_add(unleased);
        self.is_batch_answered |=
            self.wanted_calls > 0 && pending.wanted_calls == self.wanted_calls;
        // More calls are requested once half of the lease is spent, or all of a lease of one call.
        let refill_at = if max_held_calls(limit, leased_by_all) == 1 { 0 } else { held / 2 };
        Some(GrantOutcome {
            settled_calls: pending.unsettled_calls,
            is_exhausted: pending.requested_calls > 0
                && granted == 0
                && held == 0
                // Calls refunded since the report are left: the next report returns them.
                && self.calls_to_return == 0
                && is_answer_final,
            is_recovering: grant.is_recovering,
            refill_threshold: refill_at,
            refill_can_wait: refill_at as f64
                > URGENT_SUPPLY_SECONDS * self.current_calls_per_second(pending.spent) as f64,
        })
    }

    /// Records the totals that the store returned. While the store recovers, its totals may be
    /// lower than those known before, so the higher value is kept.
    fn record_store_totals(&mut self, pending: &PendingReport, grant: Grant) {
        let (mut leased, mut spent) = (grant.others_leased, grant.others_spent);
        if grant.is_recovering {
            leased = leased.max(self.others_leased);
            spent = spent.max(self.others_spent);
        }
        self.others_leased = leased;
        self.others_spent = spent;
        self.known = TotalsKnownToNode {
            sequence: pending.sequence,
            revision: grant.revision,
            leased_by_all: grant.own_leased.saturating_add(leased),
            spent_by_all: pending.spent.saturating_add(spent),
            own_leased: grant.own_leased,
            reported_leased: grant.own_leased,
            reported_spent: pending.spent,
        };
    }

    /// Notes that the report in flight was not answered: the store may or may not have applied the
    /// report. The totals stay as they are, because the next report names them again.
    pub(super) fn mark_report_unanswered(&mut self) {
        self.maybe_granted = self.calls_requested();
        self.pending_report = None;
        self.reported_spent = None;
    }

    /// Makes the next report carry all totals again, because the store may have lost them. Returns
    /// true if this lease has any totals.
    pub(super) fn mark_totals_unreported(&mut self) -> bool {
        self.reported_spent = None;
        self.known.sequence > 0 || self.own_leased + self.unsettled_calls > 0
    }

    /// Drops the totals of the past `month`, because the store has accepted the final report.
    /// Returns how many unbacked calls the report settled.
    pub(super) fn confirm_final_report(&mut self, month: Month) -> u64 {
        let confirmed = self.past_months_to_report.iter().filter(|past| past.month == month);
        let settled = confirmed.map(|past| past.unsettled_calls).sum();
        self.past_months_to_report.retain(|past| past.month != month);
        settled
    }
}
