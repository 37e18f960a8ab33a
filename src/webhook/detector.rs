//! Finds the reached thresholds that the store does not have yet.

use std::collections::HashMap;

use super::event::ReachedThreshold;
use super::threshold::thresholds_reached;
use crate::model::month::Month;
use crate::quota::AccountUsage;
use crate::store::NewQuotaEvent;

/// An account that got no call in this many observations gets none any more. An idle node returns
/// its calls within two seconds, so no living node holds any. A crash can lose calls: then the spent
/// calls never reach the limit.
const REFUSED_OBSERVATIONS: u32 = 5;
/// If an account reaches two thresholds at once, the event of the higher one is sent this many
/// seconds later, so that it arrives after the lower one.
const SECONDS_BETWEEN_THRESHOLDS: i64 = 1;

/// Remembers which reached thresholds the store has, so that each is recorded once. The store decides: a
/// repeated record changes nothing there.
#[derive(Default)]
pub struct ThresholdDetector {
    recorded: HashMap<String, RecordedThreshold>,
    refused: HashMap<String, Refused>,
}

/// The highest threshold of an account that is recorded.
struct RecordedThreshold {
    month: Month,
    limit: u64,
    percent: u8,
}

/// An account that gets no calls.
struct Refused {
    spent: u64,
    observations: u32,
}

impl ThresholdDetector {
    /// Observes an account, once a second, and adds its newly reached thresholds to `found`, the lower
    /// threshold first. `plan` is the account's plan; `None` if there is no such account any more.
    pub fn observe<'p>(
        &mut self,
        month: Month,
        usage: &AccountUsage<'_>,
        plan: impl FnOnce() -> Option<&'p str>,
        found: &mut Vec<ReachedThreshold>,
    ) {
        let is_refused = self.is_refused(usage);
        let AccountUsage { account, spent, limit, .. } = *usage;
        let recorded = self.recorded.get(account);
        let recorded = recorded.filter(|it| it.month == month && it.limit == limit);
        let highest = recorded.map_or(0, |it| it.percent);
        let mut new = thresholds_reached(spent, limit, is_refused)
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

    /// Returns true if the account gets no more calls, although it has not spent its limit.
    fn is_refused(&mut self, usage: &AccountUsage<'_>) -> bool {
        if !usage.is_exhausted {
            // The next calls may be minutes away, so the observations stay.
            let refused = self.refused.get(usage.account);
            return refused.is_some_and(|it| {
                it.spent == usage.spent && it.observations >= REFUSED_OBSERVATIONS
            });
        }
        let new = Refused { spent: usage.spent, observations: 0 };
        let refused = self.refused.entry(usage.account.to_owned()).or_insert(new);
        if refused.spent != usage.spent {
            *refused = Refused { spent: usage.spent, observations: 0 };
        }
        refused.observations = refused.observations.saturating_add(1);
        refused.observations >= REFUSED_OBSERVATIONS
    }

    /// The events of these reached thresholds, to be recorded now.
    pub fn events(thresholds: &[ReachedThreshold], unix_now: i64) -> Vec<NewQuotaEvent> {
        let mut previous: Option<&ReachedThreshold> = None;
        let event = |reached| {
            let before = previous.replace(reached);
            let is_second = before.is_some_and(|before| before.account == reached.account);
            let wait = if is_second { SECONDS_BETWEEN_THRESHOLDS } else { 0 };
            reached.to_event(unix_now, unix_now + wait)
        };
        thresholds.iter().map(event).collect()
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

    /// Forgets what the store has: it may have lost events.
    pub fn forget_recorded(&mut self) {
        self.recorded.clear();
    }

    /// Forgets which accounts get no calls, because another month has begun.
    pub fn forget_refused(&mut self) {
        self.refused.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn november() -> Month {
        Month::parse("2026-11").unwrap()
    }

    fn usage(spent: u64, limit: u64, is_exhausted: bool) -> AccountUsage<'static> {
        AccountUsage { account: "acme", spent, limit, is_exhausted }
    }

    /// Observes an account once, and records what is found. Returns the thresholds.
    fn observe(detector: &mut ThresholdDetector, usage: AccountUsage<'_>) -> Vec<u8> {
        let mut found = Vec::new();
        detector.observe(november(), &usage, || Some("free"), &mut found);
        found.iter().for_each(|reached| detector.mark_recorded(reached));
        found.iter().map(|reached| reached.threshold_percent).collect()
    }

    #[test]
    fn each_threshold_is_found_until_it_is_recorded() {
        let mut detector = ThresholdDetector::default();
        assert!(observe(&mut detector, usage(79, 100, false)).is_empty());
        let mut found = Vec::new();
        for _ in 0..2 {
            detector.observe(november(), &usage(85, 100, false), || Some("free"), &mut found);
        }
        assert_eq!(found.len(), 2, "nothing was recorded yet");
        assert_eq!(observe(&mut detector, usage(85, 100, false)), [80]);
        assert!(observe(&mut detector, usage(99, 100, false)).is_empty());
        assert_eq!(observe(&mut detector, usage(100, 100, false)), [100]);
        assert!(observe(&mut detector, usage(100, 100, false)).is_empty());
        assert_eq!(observe(&mut detector, usage(100, 120, false)), [80], "another limit");
        assert_eq!(observe(&mut detector, usage(100, 100, false)), [80, 100], "the store knows");
        detector.forget_recorded();
        assert_eq!(observe(&mut detector, usage(100, 100, false)), [80, 100]);
        let mut found = Vec::new();
        let december = Month::parse("2026-12").unwrap();
        detector.observe(december, &usage(80, 100, false), || Some("free"), &mut found);
        assert_eq!(found.len(), 1, "another month");
    }

    #[test]
    fn an_account_that_is_gone_is_not_told() {
        let mut found = Vec::new();
        let mut detector = ThresholdDetector::default();
        detector.observe(november(), &usage(85, 100, false), || None, &mut found);
        assert!(found.is_empty());
    }

    #[test]
    fn an_account_that_gets_no_more_calls_counts_as_full() {
        let mut detector = ThresholdDetector::default();
        for _ in 1..REFUSED_OBSERVATIONS {
            assert!(observe(&mut detector, usage(70, 100, true)).is_empty());
        }
        // A node returned calls, and they were spent.
        assert!(observe(&mut detector, usage(71, 100, true)).is_empty());
        assert!(observe(&mut detector, usage(71, 100, false)).is_empty());
        for _ in 2..REFUSED_OBSERVATIONS {
            assert!(observe(&mut detector, usage(71, 100, true)).is_empty());
        }
        assert_eq!(observe(&mut detector, usage(71, 100, true)), [80, 100]);
        assert!(observe(&mut detector, usage(71, 100, false)).is_empty());
    }

    #[test]
    fn the_higher_of_two_thresholds_is_sent_later() {
        let mut found = Vec::new();
        let mut detector = ThresholdDetector::default();
        detector.observe(november(), &usage(100, 100, false), || Some("free"), &mut found);
        let other = AccountUsage { account: "other", spent: 8, limit: 10, is_exhausted: false };
        detector.observe(november(), &other, || Some("free"), &mut found);
        let events = ThresholdDetector::events(&found, 50);
        let due: Vec<i64> = events.iter().map(|event| event.due_at).collect();
        assert_eq!(due, [50, 51, 50]);
    }
}
