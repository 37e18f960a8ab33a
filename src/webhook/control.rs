//! Tells the threads of webhooks which options are in force, and when to end.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::options::WebhookOptions;

use crate::support::lock::lock;

/// Tells the threads of webhooks their options, and that the process ends.
#[derive(Default)]
pub struct WebhookControl {
    state: Mutex<ControlState>,
    changed: Condvar,
}

#[derive(Default)]
struct ControlState {
    options: Option<Arc<WebhookOptions>>,
    is_closed: bool,
    /// Whether the sending thread runs.
    is_sender_running: bool,
}

impl WebhookControl {
    /// Replaces the options; `None` switches webhooks off.
    pub fn set_options(&self, options: Option<WebhookOptions>) {
        lock(&self.state).options = options.map(Arc::new);
        self.changed.notify_all();
    }

    /// Returns the options in force; `None` if webhooks are off.
    pub fn options(&self) -> Option<Arc<WebhookOptions>> {
        lock(&self.state).options.clone()
    }

    /// Waits until the control is closed, at most for `max_wait`. Returns true if it is closed.
    pub fn wait_until_closed(&self, max_wait: Duration) -> bool {
        let is_waiting = |state: &mut ControlState| !state.is_closed;
        let waited = self.changed.wait_timeout_while(lock(&self.state), max_wait, is_waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_closed
    }

    /// Returns true if the control is closed.
    pub fn is_closed(&self) -> bool {
        lock(&self.state).is_closed
    }

    /// Notes that the sending thread runs, or that it has ended.
    pub fn set_sender_running(&self, is_running: bool) {
        lock(&self.state).is_sender_running = is_running;
        self.changed.notify_all();
    }

    /// Tells the threads to end: they start no new work.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until the sending thread has sent the messages in flight and saved their outcomes, at
    /// most for `max_wait`. A message whose outcome is not saved is sent again later, with the same
    /// id.
    pub fn wait_for_sender(&self, max_wait: Duration) {
        let is_waiting = |state: &mut ControlState| state.is_sender_running;
        drop(self.changed.wait_timeout_while(lock(&self.state), max_wait, is_waiting));
    }
}
