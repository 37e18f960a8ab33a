//! Requests to reload all parts: SIGHUP, and `POST /reload` on the admin listener.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use super::table::TableRebuilder;

/// The outcome of a reload by part: the fault, or None if the part was reloaded.
pub type ReloadOutcome = BTreeMap<&'static str, Option<String>>;

/// The sender for the outcome of a request; None if the requester does not wait for the outcome.
type ReplyTo = Option<oneshot::Sender<ReloadOutcome>>;

/// Requests a reload of all parts.
#[derive(Clone)]
pub struct ReloadTrigger {
    requests: mpsc::UnboundedSender<ReplyTo>,
    wakeup: Arc<Notify>,
    /// `None` until the table's thread has started.
    table: Option<TableRebuilder>,
}

impl ReloadTrigger {
    /// Lets the trigger also rebuild the table alone.
    pub(super) fn with_table(self, table: TableRebuilder) -> ReloadTrigger {
        ReloadTrigger { table: Some(table), ..self }
    }

    /// Rebuilds the table, and waits until it serves, at most for `max_wait`. Returns why it does
    /// not serve; `None` if it does.
    pub async fn rebuild_table_and_wait(&self, max_wait: Duration) -> Option<String> {
        let table = self.table.as_ref()?;
        match tokio::time::timeout(max_wait, table.request_rebuild(None)).await {
            Ok(Ok(problem)) => problem,
            Ok(Err(_)) => Some("the process ends".to_owned()),
            Err(_) => Some(format!("expected a table within {max_wait:?}, but found none")),
        }
    }

    /// Requests a reload without waiting for it.
    pub fn request_reload(&self) {
        // The receiver is gone only when the process ends.
        let _ = self.requests.send(None);
    }

    /// Requests a reload and waits for its outcome. Returns `None` if the process ends first.
    pub async fn reload_and_wait(&self) -> Option<ReloadOutcome> {
        let (sender, receiver) = oneshot::channel();
        self.requests.send(Some(sender)).ok()?;
        receiver.await.ok()
    }

    /// Makes the reloader look for changes at once, instead of at its next poll.
    pub fn check_for_changes(&self) {
        self.wakeup.notify_one();
    }
}

/// The queue of requests.
pub(super) struct ReloadRequests {
    requests: mpsc::UnboundedReceiver<ReplyTo>,
    wakeup: Arc<Notify>,
}

impl ReloadRequests {
    pub(super) fn new() -> (ReloadTrigger, ReloadRequests) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let wakeup = Arc::new(Notify::new());
        let trigger = ReloadTrigger { requests: sender, wakeup: Arc::clone(&wakeup), table: None };
        (trigger, ReloadRequests { requests: receiver, wakeup })
    }

    /// Refuses all requests from now on, and answers those in the queue that the process ends.
    pub(super) fn close(&mut self) {
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
    }

    /// Waits for a request or a call of [`ReloadTrigger::check_for_changes`], for at most
    /// `max_wait`, and takes all requests from the queue. Returns `None` if there was no request,
    /// else one sender for each requester that waits for the outcome. It waits for `max_wait` even
    /// if no trigger is left: a mounted gate has none.
    pub(super) async fn wait_and_take_all(
        &mut self,
        max_wait: Duration,
    ) -> Option<Vec<oneshot::Sender<ReloadOutcome>>> {
        let first = tokio::select! {
            Some(request) = self.requests.recv() => Some(request),
            () = self.wakeup.notified() => None,
            () = tokio::time::sleep(max_wait) => None,
        };
        let mut requests: Vec<ReplyTo> = first.into_iter().collect();
        // Also after the timeout: a request may arrive just then.
        while let Ok(request) = self.requests.try_recv() {
            requests.push(request);
        }
        (!requests.is_empty()).then(|| requests.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_trigger_each_wait_lasts_its_time() {
        let (trigger, mut requests) = ReloadRequests::new();
        drop(trigger);
        let (begun_at, max_wait) = (std::time::Instant::now(), Duration::from_millis(20));
        assert!(requests.wait_and_take_all(max_wait).await.is_none());
        assert!(begun_at.elapsed() >= max_wait);
    }

    #[tokio::test]
    async fn a_request_that_arrives_with_the_timeout_is_taken() {
        let (trigger, mut requests) = ReloadRequests::new();
        assert!(requests.wait_and_take_all(Duration::ZERO).await.is_none());
        trigger.request_reload();
        assert!(requests.wait_and_take_all(Duration::ZERO).await.unwrap().is_empty());
        let reload = tokio::spawn(async move { trigger.reload_and_wait().await });
        tokio::task::yield_now().await;
        let senders = requests.wait_and_take_all(Duration::ZERO).await.expect("a request");
        for sender in senders {
            sender.send(ReloadOutcome::from([("keys", None)])).unwrap();
        }
        assert_eq!(reload.await.unwrap(), Some(ReloadOutcome::from([("keys", None)])));
    }
}
