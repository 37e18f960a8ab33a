//! The thread that finds reached thresholds and records them in the store.
//!
//! Once a second, the thread looks at the leases in memory. After a start, soon after another month
//! has begun, if the thresholds change, and every ten minutes, the thread reads the usage of the
//! month from the store: a killed process may have reached thresholds that no living node knows of,
//! and a new threshold may be below what accounts have used. At the same time, the thread forgets
//! which events it has recorded, because the store may have lost some events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::StoreOptions;
use crate::gate::GateState;
use crate::keys::KeyRing;
use crate::model::month::Month;
use crate::model::monthly_limit::MonthlyLimit;
use crate::process::reload::store_connection::open_if_none;
use crate::quota::AccountUsage;
use crate::store::{MAX_PENDING_QUOTA_EVENTS, Store, StoreError};
use crate::webhook::{ReachedThreshold, ThresholdDetector, Thresholds};

/// How often the thread looks at the leases.
const DETECTION_INTERVAL: Duration = Duration::from_secs(1);
/// How often the thread reads the usage of the month from the store.
const USAGE_READ_INTERVAL: Duration = Duration::from_mins(10);
/// How soon the thread reads the usage after a failure, and after another month has begun. By then,
/// every node that reaches the store has reported its last calls of the past month.
const EARLY_USAGE_READ_DELAY: Duration = Duration::from_secs(10);
/// For how many seconds after the end of a month the thread reads the usage of that month. Later,
/// an account may have another limit than it had in that month.
const READ_PAST_MONTH_FOR_SECONDS: i64 = 60;
/// How soon the thread tries again if the store has too many pending events.
const FULL_STORE_DELAY: Duration = Duration::from_secs(10);
/// The most events that the thread records in one transaction. During the transaction, the ledger
/// waits for SQLite's lock.
const MAX_EVENTS_PER_TRANSACTION: usize = 500;
/// The store may forget an event this many seconds after the event was finished. By then the month
/// of the event is over, so no node records the event again.
const FINISHED_EVENT_RETENTION_SECONDS: i64 = 62 * 86_400;

/// The thread that finds reached thresholds, and what it knows.
pub(super) struct DetectionThread {
    state: Arc<GateState>,
    store_options: StoreOptions,
    /// The connection to the store; `None` until the thread needs the store.
    store: Option<Store>,
    detector: ThresholdDetector,
    month: Month,
    /// The thresholds of the last look.
    thresholds: Option<Thresholds>,
    next_usage_read_at: Instant,
    /// The thread records nothing before this time, because the store had too many pending events.
    paused_until: Instant,
    last_problem: Option<String>,
}

impl DetectionThread {
    pub(super) fn new(state: Arc<GateState>, store_options: StoreOptions) -> DetectionThread {
        let now = Instant::now();
        DetectionThread {
            state,
            store_options,
            store: None,
            detector: ThresholdDetector::default(),
            month: Month::FIRST,
            thresholds: None,
            next_usage_read_at: now,
            paused_until: now,
            last_problem: None,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            if let Some(options) = self.state.webhook.options() {
                self.detect_and_report(&options.thresholds);
            }
            if self.state.webhook.wait_until_closed(DETECTION_INTERVAL) {
                return;
            }
        }
    }

    /// Detects reached thresholds, and records them. Logs a new problem, and the end of a problem.
    fn detect_and_report(&mut self, thresholds: &Thresholds) {
        let problem = self.detect(thresholds).err();
        if problem != self.last_problem {
            match &problem {
                Some(problem) => log::warn!("webhook: {problem}"),
                None => log::info!("webhook: events are recorded again"),
            }
        }
        self.last_problem = problem;
    }

    fn detect(&mut self, thresholds: &Thresholds) -> Result<(), String> {
        let now = self.state.ledger.believed_now();
        let month = self.state.ledger.month_to_charge(now);
        if month != self.month {
            if self.month != Month::FIRST {
                self.next_usage_read_at = Instant::now() + EARLY_USAGE_READ_DELAY;
            }
            self.month = month;
            self.detector.forget_recorded();
            self.detector.forget_refused();
        }
        if self.thresholds.as_ref() != Some(thresholds) {
            self.thresholds = Some(thresholds.clone());
            self.next_usage_read_at = Instant::now();
        }
        if Instant::now() < self.paused_until {
            return self.last_problem.clone().map_or(Ok(()), Err);
        }
        let keys = self.state.keys.snapshot();
        let Some(ring) = Option::as_ref(&keys) else { return Ok(()) };
        let mut found = Vec::new();
        let mut usage_read = Ok(());
        if Instant::now() >= self.next_usage_read_at {
            self.detector.forget_recorded();
            usage_read = self.detect_in_store(month, now, ring, thresholds, &mut found);
            let wait =
                if usage_read.is_ok() { USAGE_READ_INTERVAL } else { EARLY_USAGE_READ_DELAY };
            self.next_usage_read_at = Instant::now() + wait;
        }
        let detector = &mut self.detector;
        self.state.ledger.visit_month_usage(month, |usage| {
            let plan = || ring.find_account(usage.account).map(|account| account.plan.as_str());
            detector.observe(month, usage, thresholds, plan, &mut found);
        });
        self.record_events(&found, now)?;
        usage_read.map_err(|error| error.to_string())
    }

    /// Finds reached thresholds in the totals of this month that the store has. In the first minute
    /// of a month, searches the totals of the month before as well.
    fn detect_in_store(
        &mut self,
        month: Month,
        now: i64,
        ring: &KeyRing,
        thresholds: &Thresholds,
        found: &mut Vec<ReachedThreshold>,
    ) -> Result<(), StoreError> {
        let past = month.number().checked_sub(1).and_then(Month::from_number);
        let past = past.filter(|_| now - month.start() < READ_PAST_MONTH_FOR_SECONDS);
        for month in past.into_iter().chain([month]) {
            for row in self.open_store()?.read_usage(month, None)? {
                let Some(account) = ring.find_account(&row.account) else { continue };
                let MonthlyLimit::Calls(limit) = account.limit else { continue };
                let (account_name, spent) = (row.account.as_str(), row.spent);
                let usage =
                    AccountUsage { account: account_name, spent, limit, is_exhausted: false };
                self.detector.observe(month, &usage, thresholds, || Some(&account.plan), found);
            }
        }
        Ok(())
    }

    /// Records an event in the store for each reached threshold. Until the store has the event, the
    /// thread finds the threshold again.
    fn record_events(&mut self, found: &[ReachedThreshold], now: i64) -> Result<(), String> {
        // While a clock is suspect, the store forgets no event.
        let may_forget = self.state.ledger.believed_time().allows_deletion();
        let forgotten_before = if may_forget { now - FINISHED_EVENT_RETENTION_SECONDS } else { 0 };
        let mut thresholds = found;
        while !thresholds.is_empty() {
            let step = &thresholds[..thresholds.len().min(MAX_EVENTS_PER_TRANSACTION)];
            let events = ThresholdDetector::create_events(step, now);
            let store = self.open_store().map_err(|error| error.to_string())?;
            let recorded = store.record_quota_events(&events, forgotten_before);
            let recorded = recorded.map_err(|error| error.to_string())?.min(step.len());
            step[..recorded].iter().for_each(|reached| self.detector.mark_recorded(reached));
            if recorded < step.len() {
                self.paused_until = Instant::now() + FULL_STORE_DELAY;
                return Err(format!(
                    "expected at most {MAX_PENDING_QUOTA_EVENTS} pending events, but found more: \
                     the others wait"
                ));
            }
            thresholds = &thresholds[recorded..];
        }
        Ok(())
    }

    fn open_store(&mut self) -> Result<&mut Store, StoreError> {
        open_if_none(&mut self.store, &self.store_options, self.store_options.deadline)
    }
}
