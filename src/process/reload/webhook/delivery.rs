//! The thread that sends recorded events to the receiver.
//!
//! The thread claims events in the store, so that only one node at a time sends an event, and saves
//! each outcome in the store. The thread sends the messages of different accounts at once, so that
//! a slow answer delays few other messages. It sends the messages of one account one after another.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, Scope};
use std::time::Duration;

use super::post::{PostError, post_message};
use crate::config::StoreOptions;
use crate::gate::GateState;
use crate::process::reload::status_reporter::StatusReporter;
use crate::process::reload::store_connection::open_if_none;
use crate::store::{ClaimTimes, ClaimedQuotaEvent, QuotaEventOutcome, Store, StoreError};
use crate::webhook::{
    DeliveryHistory, DeliveryOutcome, GIVE_UP_AFTER_SECONDS, WebhookOptions, WebhookStatus,
    message_id, retry_delay_seconds,
};

/// How often the thread looks for due events if there were none.
const DELIVERY_INTERVAL: Duration = Duration::from_secs(1);
/// The most messages that are sent at once.
const MAX_MESSAGES_IN_FLIGHT: usize = 4;
/// A claim lasts this many seconds longer than the attempts for all its events may take.
const CLAIM_MARGIN_SECONDS: u64 = 20;
/// Every wait for the next attempt is shorter than this many seconds. If an event is due even
/// later, its due time was written while a clock was ahead.
const LATEST_DUE_AFTER_SECONDS: i64 = 2 * 3_600;

/// The thread that sends events, and what it knows.
pub(super) struct DeliveryThread {
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    store_options: StoreOptions,
    /// The connection to the store; `None` until the thread needs the store.
    store: Option<Store>,
    /// Outcomes that the store does not have yet.
    unsaved: Vec<(ClaimedQuotaEvent, QuotaEventOutcome)>,
    history: DeliveryHistory,
    store_problem: Option<String>,
}

impl DeliveryThread {
    pub(super) fn new(
        state: Arc<GateState>,
        status_reporter: StatusReporter,
        store_options: StoreOptions,
    ) -> DeliveryThread {
        DeliveryThread {
            state,
            status_reporter,
            store_options,
            store: None,
            unsaved: Vec::new(),
            history: DeliveryHistory::default(),
            store_problem: None,
        }
    }

    pub(super) fn run(mut self) {
        let control = &Arc::clone(&self.state).webhook;
        control.set_sender_running(true);
        while !control.is_closed() {
            let options = control.options();
            let sent = options.as_deref().map_or(Ok(0), |options| self.deliver_due(options));
            self.store_problem = sent.as_ref().err().map(ToString::to_string);
            self.publish_status(options.as_deref());
            if sent.unwrap_or(0) == 0 {
                control.wait_until_closed(DELIVERY_INTERVAL);
            }
        }
        control.set_sender_running(false);
    }

    /// Sends events that are due, at most [`MAX_MESSAGES_IN_FLIGHT`]. Returns how many it claimed.
    fn deliver_due(&mut self, options: &WebhookOptions) -> Result<usize, StoreError> {
        self.save_outcomes()?;
        let now = self.state.ledger.believed_now();
        let longest = options.timeout.as_secs() + 1;
        let claim = longest * MAX_MESSAGES_IN_FLIGHT as u64 + CLAIM_MARGIN_SECONDS;
        let times = ClaimTimes {
            now,
            latest_due: now + LATEST_DUE_AFTER_SECONDS,
            claimed_until: now.saturating_add_unsigned(claim),
        };
        let events = self.open_store()?.claim_quota_events(times, MAX_MESSAGES_IN_FLIGHT)?;
        let count = events.len();
        if count > 0 {
            // The status is published before the sending, because that may take long.
            self.publish_status(Some(options));
            self.send_all(options, events);
        }
        self.save_outcomes()?;
        Ok(count)
    }

    /// Sends the events: those of different accounts at once, those of one account one after
    /// another. Saves each outcome at once, so that a crash repeats few messages.
    fn send_all(&mut self, options: &WebhookOptions, events: Vec<ClaimedQuotaEvent>) {
        let mut by_account: BTreeMap<String, Vec<ClaimedQuotaEvent>> = BTreeMap::new();
        for event in events {
            by_account.entry(event.account.clone()).or_default().push(event);
        }
        let by_account: Vec<Vec<ClaimedQuotaEvent>> = by_account.into_values().collect();
        let (sender, attempts) = channel();
        let state = &*Arc::clone(&self.state);
        std::thread::scope(|scope| {
            let send = move |events: &Vec<_>| send_events(state, options, events, &sender);
            act_at_once(scope, Builder::new, &by_account, send);
            for (event, result) in attempts {
                match result {
                    Some(result) => self.record_attempt(event, result),
                    // The process ends, so another process may send the event now.
                    None => {
                        let due_now = QuotaEventOutcome::DueAgain(state.ledger.believed_now());
                        self.unsaved.push((event, due_now));
                    }
                }
                // If the store fails, a later call saves the outcomes.
                let _ = self.save_outcomes();
            }
        });
    }

    /// Decides what follows from an attempt, and counts the attempt. Logs the first failure of
    /// several, the end of failures, and each event that is given up.
    fn record_attempt(&mut self, event: ClaimedQuotaEvent, result: Result<(), PostError>) {
        let now = self.state.ledger.believed_now();
        let (attempt, outcome) = match &result {
            Ok(()) => (DeliveryOutcome::Delivered, QuotaEventOutcome::Delivered(now)),
            Err(error) if error.is_final || now - event.created_at >= GIVE_UP_AFTER_SECONDS => {
                (DeliveryOutcome::GivenUp, QuotaEventOutcome::GivenUp(now))
            }
            Err(_) => {
                let random = getrandom::u64().unwrap_or_default();
                let due_at = now + retry_delay_seconds(event.attempts, random);
                (DeliveryOutcome::Failed, QuotaEventOutcome::DueAgain(due_at))
            }
        };
        let error = result.err().map(|error| error.found);
        match (&error, attempt) {
            (None, _) if self.history.is_failing() => {
                log::info!("webhook: the receiver accepts events again")
            }
            (None, _) => {}
            (Some(found), DeliveryOutcome::GivenUp) => log::error!(
                "webhook: event {} is given up: expected the receiver to accept it, but found \
                 {found}",
                event.key
            ),
            (Some(found), _) if !self.history.is_failing() => log::warn!(
                "webhook: expected the receiver to accept an event, but found {found}; riskgate \
                 tries again"
            ),
            (Some(_), _) => {}
        }
        self.history.count_attempt(attempt, error.as_deref(), now);
        self.state.metrics.webhook.count_delivery(attempt);
        self.unsaved.push((event, outcome));
    }

    fn save_outcomes(&mut self) -> Result<(), StoreError> {
        while let Some((event, outcome)) = self.unsaved.pop() {
            let store = self.open_store();
            let saved = store.and_then(|store| store.finish_quota_event(&event, outcome));
            if let Err(error) = saved {
                self.unsaved.push((event, outcome));
                return Err(error);
            }
        }
        Ok(())
    }

    fn open_store(&mut self) -> Result<&mut Store, StoreError> {
        open_if_none(&mut self.store, &self.store_options, self.store_options.deadline)
    }

    fn publish_status(&mut self, options: Option<&WebhookOptions>) {
        let counted = match self.store.as_mut().filter(|_| options.is_some()) {
            Some(store) => store.count_pending_quota_events(),
            None => Ok(0),
        };
        let pending = counted.as_ref().copied().unwrap_or(0);
        if let Err(error) = counted {
            self.store_problem.get_or_insert(error.to_string());
        }
        let now = self.state.ledger.believed_now();
        let problem = self.history.problem(pending, now).or_else(|| self.store_problem.clone());
        let problem = problem.filter(|_| options.is_some());
        self.state.metrics.webhook.set_pending_events(pending);
        self.status_reporter.record_part("webhook", problem.as_deref(), false);
        let (url, history) = (options.map(|it| it.url.to_string()), self.history.clone());
        let webhook = url.map(|url| WebhookStatus { url, pending, history });
        self.status_reporter.update(|status| status.webhook = webhook);
    }
}

/// Sends events one after another, and tells the result of each; `None` if the process ends, so
/// that the event was not sent.
fn send_events(
    state: &GateState,
    options: &WebhookOptions,
    events: &[ClaimedQuotaEvent],
    results: &Sender<(ClaimedQuotaEvent, Option<Result<(), PostError>>)>,
) {
    for event in events {
        let id = message_id(&event.key);
        let now = state.ledger.believed_now();
        let post = || post_message(options, &id, &event.body, now);
        let result = (!state.webhook.is_closed()).then(|| {
            catch_unwind(AssertUnwindSafe(post))
                .unwrap_or_else(|_| Err(PostError { found: "a panic".to_owned(), is_final: false }))
        });
        // The receiver of the channel lives until all events are sent.
        let _ = results.send((event.clone(), result));
    }
}

/// Acts on each item on a thread of its own. If a thread can't be started, this thread acts on its
/// item, once the others are started.
fn act_at_once<'scope, T: Sync>(
    scope: &'scope Scope<'scope, '_>,
    create_thread: impl Fn() -> Builder,
    items: &'scope [T],
    act: impl Fn(&T) + Clone + Send + 'scope,
) {
    let mut without_thread = Vec::new();
    for item in items {
        let act_on_thread = act.clone();
        let started = create_thread().spawn_scoped(scope, move || act_on_thread(item));
        if started.is_err() {
            without_thread.push(item);
        }
    }
    without_thread.into_iter().for_each(act);
}

#[cfg(test)]
mod tests;
