//! Runs quota webhooks. One thread finds reached thresholds and records them in the store as
//! events. Another thread sends the events. No request waits for the store or for the receiver of
//! the events.

mod delivery;
mod detection;
mod post;
mod resolver;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use super::status_reporter::StatusReporter;
use crate::config::StoreOptions;
use crate::gate::GateState;
use crate::webhook::WebhookOptions;

use delivery::DeliveryThread;
use detection::DetectionThread;

/// The `nice` value of the threads, so that request threads go first if processors are busy.
const THREAD_NICENESS: i32 = 10;
/// How soon a thread begins again after a panic.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Starts the threads of webhooks once they are needed, and changes their options.
pub(super) struct WebhookThreads {
    state: Arc<GateState>,
    status_reporter: StatusReporter,
    store: StoreOptions,
    is_detection_running: bool,
    is_delivery_running: bool,
}

impl WebhookThreads {
    /// No thread runs until [`WebhookThreads::set_options`] is called.
    pub(super) fn new(
        state: Arc<GateState>,
        status_reporter: StatusReporter,
        store: StoreOptions,
    ) -> WebhookThreads {
        let (is_detection_running, is_delivery_running) = (false, false);
        WebhookThreads { state, status_reporter, store, is_detection_running, is_delivery_running }
    }

    /// Applies changed options. Starts the threads when there is a receiver for the first time, but
    /// not before this process serves: a waiting successor must send no event, perhaps to another
    /// receiver than that of the process that serves.
    pub(super) fn set_options(&mut self, options: Option<WebhookOptions>) -> std::io::Result<()> {
        let is_needed = options.is_some() && self.state.serving.is_serving();
        self.state.webhook.set_options(options);
        if is_needed && !self.is_detection_running {
            let (state, store) = (Arc::clone(&self.state), self.store.clone());
            let detect = move || DetectionThread::new(Arc::clone(&state), store.clone()).run();
            spawn_thread("webhook", detect)?;
            self.is_detection_running = true;
        }
        if is_needed && !self.is_delivery_running {
            let (state, store) = (Arc::clone(&self.state), self.store.clone());
            let reporter = self.status_reporter.clone();
            let deliver = move || {
                DeliveryThread::new(Arc::clone(&state), reporter.clone(), store.clone()).run();
            };
            spawn_thread("webhook-send", deliver)?;
            self.is_delivery_running = true;
        }
        Ok(())
    }
}

fn spawn_thread(name: &str, run: impl Fn() + Send + 'static) -> std::io::Result<()> {
    let run_at_low_priority = || {
        // If the call fails, the thread works at normal priority.
        let _ = rustix::process::nice(THREAD_NICENESS);
        run_again_after_panics(run, RESTART_PAUSE);
    };
    Builder::new().name(name.to_owned()).spawn(run_at_low_priority).map(drop)
}

/// Calls `run` until a call ends without a panic.
fn run_again_after_panics(run: impl Fn(), pause: Duration) {
    while catch_unwind(AssertUnwindSafe(&run)).is_err() {
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests;
