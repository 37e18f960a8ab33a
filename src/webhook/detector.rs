//! Finds the reached thresholds that the store does not have yet.

use std::collections::HashMap;

use super::event::ReachedThreshold;
use super::threshold::Thresholds;
use crate::model::month::Month;
use crate::quota::AccountUsage;
use crate::store::NewQuotaEvent;

/// If the store grants an account nothing in this many observations, and no node spends a call of
/// the account meanwhile, the account counts as one that gets no more calls this month. Idle nodes
/// return their leased calls within two seconds. So the calls that are missing to the limit were
/// lost in a crash.
const OBSERVATIONS_UNTIL_REFUSED: u32 = 5;
/// If an account reaches several thresholds at once, the event of each is due this many seconds
/// after that of the one below. So it arrives later, unless the earlier event has to be repeated.
const SECONDS_BETWEEN_THRESHOLDS: usize = 1;

/// Finds reached thresholds, and remembers which of them the store has. If the detector forgets
/// one, the store still records no event twice.
#[derive(Default)]
pub struct ThresholdDetector {
    recorded: HashMap<String, RecordedThreshold>,
    refused: HashMap<String, RefusedAccount>,
}

/// The highest threshold of an account that is recorded.
struct RecordedThreshold {
    month: Month,
    limit: u64,
    percent: u16,
}

/// An account to which the store grants no calls.
struct RefusedAccount {
    /// The calls spent when the store began to grant nothing.
    spent: u64,
    /// The limit at that time. If the limit is raised, the account is no longer refused.
    limit: u64,
    /// In how many observations the store granted nothing, at these totals.
    observations: u32,
}

impl RefusedAccount {
    /// Whether the calls spent and the limit are still the same. Does not compare the account.
    fn has_same_totals_as(&self, usage: &AccountUsage<'_>) -> bool {
        (self.spent, self.limit) == (usage.spent, usage.limit)
    }
}

impl ThresholdDetector {
    /// Observes an account, and adds its reached thresholds above the highest recorded one to
    /// `found`, the lower threshold first. `plan` returns the account's plan, or `None` for an
    /// account that is gone, which adds nothing.
    pub fn observe<'p>(
        &mut self,
        month: Month,
        usage: &AccountUsage<'_>,
        thresholds: &Thresholds,
        plan: impl FnOnce() -> Option<&'p str>,
        found: &mut Vec<ReachedThreshold>,
    ) {
        let is_refused = self.observe_refusal(usage);
        let AccountUsage { account, spent, limit, .. } = *usage;
        let recorded = self.recorded.get(account);
        let recorded = recorded.filter(|it| it.month == month && it.limit == limit);
        let highest = recorded.map_or(0, |it| it.percent);
        let mut new = thresholds
            .find_reached(spent, limit, is_refused)
            .filter(|percent| *percent > highest)
            .peekable();
        if new.peek().is_none() {
            return;
        }
        let Some(plan) = plan() else { return };
        found.extend(new.map(|threshold_percent| ReachedThreshold {
            account: account.to_owned(),
            plan: plan.to_owned(),
            month,
            threshold_percent,
            spent,
            limit,
        }));
    }

    /// Counts the observation, if the store grants the account nothing now. Returns true if the
    /// account gets no more calls, even if it has not spent its limit.
    fn observe_refusal(&mut self, usage: &AccountUsage<'_>) -> bool {
        if !usage.is_exhausted {
            // The store is asked only when a client sends a request, perhaps after minutes. So
            // earlier observations still count.
            let refused = self.refused.get(usage.account);
            return refused.is_some_and(|it| {
                it.has_same_totals_as(usage) && it.observations >= OBSERVATIONS_UNTIL_REFUSED
            });
        }
        let new = || RefusedAccount { spent: usage.spent, limit: usage.limit, observations: 0 };
        let refused = self.refused.entry(usage.account.to_owned()).or_insert_with(new);
        if !refused.has_same_totals_as(usage) {
            *refused = new();
        }
        refused.observations = refused.observations.saturating_add(1);
        refused.observations >= OBSERVATIONS_UNTIL_REFUSED
    }

    /// Creates the events of these reached thresholds, to be recorded now.
    pub fn create_events(thresholds: &[ReachedThreshold], unix_now: i64) -> Vec<NewQuotaEvent> {
        let of_accounts = thresholds.chunk_by(|one, next| one.account == next.account);
        let events = of_accounts.flat_map(|reached| {
            let due_at = (unix_now..).step_by(SECONDS_BETWEEN_THRESHOLDS);
            reached.iter().zip(due_at).map(|(reached, due_at)| reached.to_event(unix_now, due_at))
        });
        events.collect()
    }

    /// Remembers that the store has this event.
    pub fn mark_recorded(&mut self, reached: &ReachedThreshold) {
        let ReachedThreshold { account, month, limit, threshold_percent, .. } = reached;
        let new = RecordedThreshold { month: *month, limit: *limit, percent: *threshold_percent };
        let recorded = self.recorded.get_mut(account);
        match recorded.filter(|it| it.month == new.month && it.limit == new.limit) {
            Some(known) => known.percent = known.percent.max(new.percent),
            None => drop(self.recorded.insert(account.clone(), new)),
        }
    }

    /// Forgets which thresholds the store has, because the store may have lost events.
    pub fn forget_recorded(&mut self) {
        self.recorded.clear();
    }

    /// Forgets which accounts get no calls, because another month has begun.
    pub fn forget_refused(&mut self) {
        self.refused.clear();
    }
}

#[cfg(test)]
mod tests;
