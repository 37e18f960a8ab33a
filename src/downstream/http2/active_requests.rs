//! The requests of one HTTP/2 connection that are being served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Counts the requests of one connection that riskgate is serving, and remembers when the last one
/// ended. A request still counts after the client has reset its stream.
pub(super) struct ActiveRequestCounter {
    count: AtomicUsize,
    created: Instant,
    /// When the last request ended, in milliseconds after `created`; 0 if none has ended.
    last_end_ms: AtomicU64,
    request_ended: Notify,
}

/// Counts one active request until the guard is dropped. A panic drops the guard as well.
pub(super) struct ActiveRequestGuard(Arc<ActiveRequestCounter>);

impl ActiveRequestGuard {
    /// Counts a request that begins.
    pub fn start(requests: &Arc<ActiveRequestCounter>) -> ActiveRequestGuard {
        requests.count.fetch_add(1, Ordering::SeqCst);
        ActiveRequestGuard(Arc::clone(requests))
    }
}

impl Drop for ActiveRequestGuard {
    fn drop(&mut self) {
        let end_ms = self.0.created.elapsed().as_millis();
        self.0.last_end_ms.store(u64::try_from(end_ms).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.request_ended.notify_one();
    }
}

impl ActiveRequestCounter {
    /// Creates the counter of a new connection.
    pub fn new() -> Arc<ActiveRequestCounter> {
        Arc::new(ActiveRequestCounter {
            count: AtomicUsize::new(0),
            created: Instant::now(),
            last_end_ms: AtomicU64::new(0),
            request_ended: Notify::new(),
        })
    }

    /// Returns the number of active requests.
    pub fn count_active(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until no request has been active for `time`, counted from `start` or from the end of
    /// the last request, whichever is later. One wait lasts through many requests: a new timer for
    /// each request would cost more than a timer that fires too early.
    pub async fn wait_until_idle_for(&self, time: Duration, start: Instant) {
        let mut idle_since = start;
        loop {
            sleep_until(idle_since + time).await;
            while self.count_active() > 0 {
                self.request_ended.notified().await;
            }
            let last_end = Duration::from_millis(self.last_end_ms.load(Ordering::SeqCst));
            let seen = start.max(self.created + last_end);
            if seen <= idle_since {
                return;
            }
            idle_since = seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    /// Returns the seconds after which a connection is idle, with requests at these seconds.
    async fn idle_after(requests: &[(u64, u64)]) -> u64 {
        let active = ActiveRequestCounter::new();
        let start = Instant::now();
        for (begin, end) in requests.iter().copied() {
            let active = Arc::clone(&active);
            tokio::spawn(async move {
                sleep_until(start + Duration::from_secs(begin)).await;
                let _guard = ActiveRequestGuard::start(&active);
                sleep_until(start + Duration::from_secs(end)).await;
            });
        }
        active.wait_until_idle_for(TIME, start).await;
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_after_the_time_without_a_request() {
        assert_eq!(idle_after(&[]).await, 10);
        assert_eq!(idle_after(&[(3, 4)]).await, 14);
        assert_eq!(idle_after(&[(3, 40)]).await, 50);
        assert_eq!(idle_after(&[(3, 4), (9, 12), (21, 22)]).await, 32);
        assert_eq!(idle_after(&[(1, 30), (2, 3)]).await, 40);
    }
}
