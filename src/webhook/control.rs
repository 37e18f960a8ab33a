//! The options in force, and the end of the threads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::options::WebhookOptions;

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
    /// A thread that sends messages runs.
    is_sender_running: bool,
}

impl WebhookControl {
    /// Replaces the options; `None` switches webhooks off.
    pub fn set_options(&self, options: Option<WebhookOptions>) {
        self.lock().options = options.map(Arc::new);
        self.changed.notify_all();
    }

    /// The options in force; `None` if webhooks are off.
    pub fn options(&self) -> Option<Arc<WebhookOptions>> {
        self.lock().options.clone()
    }

    /// Waits for this time, or until the control is closed. Returns true once it is closed.
    pub fn wait_until_closed(&self, max_wait: Duration) -> bool {
        let is_waiting = |state: &mut ControlState| !state.is_closed;
        let waited = self.changed.wait_timeout_while(self.lock(), max_wait, is_waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_closed
    }

    /// Returns true once the control is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Notes that the sending thread runs, or that it has ended.
    pub fn set_sender_running(&self, is_running: bool) {
        self.lock().is_sender_running = is_running;
        self.changed.notify_all();
    }

    /// Ends the threads: they start nothing new.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until the messages in flight are sent, and the store knows the outcomes. Gives up after
    /// `max_wait`: a message may then be sent again, with the same id.
    pub fn wait_for_sender(&self, max_wait: Duration) {
        let is_waiting = |state: &mut ControlState| state.is_sender_running;
        drop(self.changed.wait_timeout_while(self.lock(), max_wait, is_waiting));
    }

    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
