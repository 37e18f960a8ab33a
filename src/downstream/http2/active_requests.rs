//! The requests of one HTTP/2 connection that are being served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// The number of requests of one connection that are being served, and a notification when one
/// ends. A request still counts after the client has reset its stream.
#[derive(Default)]
pub(super) struct ActiveRequests {
    count: AtomicUsize,
    request_ended: Notify,
}

/// Counts one active request until the guard is dropped. A panic drops the guard too.
pub(super) struct ActiveRequestGuard(Arc<ActiveRequests>);

impl ActiveRequestGuard {
    /// Counts a request that begins.
    pub fn start(requests: &Arc<ActiveRequests>) -> ActiveRequestGuard {
        requests.count.fetch_add(1, Ordering::SeqCst);
        ActiveRequestGuard(Arc::clone(requests))
    }
}

impl Drop for ActiveRequestGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.request_ended.notify_one();
    }
}

impl ActiveRequests {
    /// Returns the number of active requests.
    pub fn count_active(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until no request is active, and then for `time`. Does not notice a request that begins
    /// during `time`: for each new request, the caller replaces this wait with a new one.
    pub async fn wait_until_idle_for(&self, time: Duration) {
        while self.count_active() > 0 {
            self.request_ended.notified().await;
        }
        sleep(time).await;
    }
}
