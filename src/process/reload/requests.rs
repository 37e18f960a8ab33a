//! Requests to the reloader. SIGHUP and two paths of the admin listener request a reload of all
//! parts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use super::table::TableRebuilder;

/// The outcome of a reload by part: the fault, or `None` if the part was reloaded.
pub type ReloadOutcome = BTreeMap<&'static str, Option<String>>;

/// The sender of the outcome to a requester.
type ReplySender = oneshot::Sender<ReloadOutcome>;

/// Asks the reloader to reload all parts, to rebuild the table, or to look for changes.
#[derive(Clone)]
pub struct ReloadTrigger {
    requests: mpsc::UnboundedSender<ReplySender>,
    wakeup: Arc<Notify>,
    /// `None` until the table's thread has started.
    table: Option<TableRebuilder>,
}

impl ReloadTrigger {
    /// Lets the trigger ask this thread to rebuild the table.
    pub(super) fn with_table(self, table: TableRebuilder) -> ReloadTrigger {
        ReloadTrigger { table: Some(table), ..self }
    }

    /// Requests a rebuild of the table after a change of overrides in the store. Waits until a
    /// table with the change serves, at most for `max_wait`. Returns why none serves; `None` if one
    /// does, and before the table's thread has started.
    pub async fn rebuild_table_and_wait(&self, max_wait: Duration) -> Option<String> {
        let table = self.table.as_ref()?;
        match tokio::time::timeout(max_wait, table.request_rebuild(None)).await {
            Ok(Ok(problem)) => problem,
            Ok(Err(_)) => Some("the process ends".to_owned()),
            Err(_) => Some(format!("expected a table within {max_wait:?}, but found none")),
        }
    }

    /// Requests a reload of all parts, and waits for the outcome. Returns `None` if the process
    /// ends first.
    pub async fn reload_and_wait(&self) -> Option<ReloadOutcome> {
        let (sender, receiver) = oneshot::channel();
        self.requests.send(sender).ok()?;
        receiver.await.ok()
    }

    /// Makes the reloader look for changed sources at once, and not only at its next poll.
    pub fn check_for_changes(&self) {
        self.wakeup.notify_one();
    }
}

/// The queue of requests to reload all parts.
pub(super) struct ReloadRequests {
    requests: mpsc::UnboundedReceiver<ReplySender>,
    wakeup: Arc<Notify>,
}

impl ReloadRequests {
    pub(super) fn new() -> (ReloadTrigger, ReloadRequests) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let wakeup = Arc::new(Notify::new());
        let trigger = ReloadTrigger { requests: sender, wakeup: Arc::clone(&wakeup), table: None };
        (trigger, ReloadRequests { requests: receiver, wakeup })
    }

    /// Refuses all requests from now on, and drops those in the queue. Their requesters then get
    /// `None`.
    pub(super) fn close(&mut self) {
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
    }

    /// Waits for a request or a call of [`ReloadTrigger::check_for_changes`], at most for
    /// `max_wait`. Then takes all requests from the queue, and returns the senders for their
    /// replies, or `None` if there was no request. Waits for `max_wait` even if no trigger is left:
    /// a mounted gate has none.
    pub(super) async fn wait_and_take_all(
        &mut self,
        max_wait: Duration,
    ) -> Option<Vec<ReplySender>> {
        let first = tokio::select! {
            Some(request) = self.requests.recv() => Some(request),
            () = self.wakeup.notified() => None,
            () = tokio::time::sleep(max_wait) => None,
        };
        let mut requests: Vec<ReplySender> = first.into_iter().collect();
        // A request may have arrived at the moment of the timeout.
        while let Ok(request) = self.requests.try_recv() {
            requests.push(request);
        }
        (!requests.is_empty()).then_some(requests)
    }
}

#[cfg(test)]
mod tests;
