//! The requests of one HTTP/2 connection that are being served, and the connection's unsent bytes.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::downstream::client_io::SendProgress;
use crate::gate::UnsentBytes;

/// A client that takes fewer bytes than this in the write timeout reads too slowly, if bytes wait.
/// Over HTTP/1.1, a part of a body has at most as many bytes, and the same time.
const MIN_BYTES_IN_WRITE_TIMEOUT: u64 = 16 * 1024;

/// Counts the requests of one connection that riskgate is serving, and remembers when the last one
/// ended. A request counts until riskgate has served it, and the h2 crate has sent its response or
/// dropped its stream.
pub(super) struct ActiveRequestCounter {
    count: AtomicUsize,
    created: Instant,
    /// When the last request ended, in milliseconds after `created`; 0 if none has ended.
    last_end_ms: AtomicU64,
    request_ended: Notify,
    /// The bytes that wait in the h2 crate.
    pub unsent: Arc<UnsentBytes>,
    /// How far riskgate has sent what the h2 crate wrote.
    send_progress: Arc<SendProgress>,
    write_timeout: Duration,
}

/// How the wait for an idle connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleOutcome {
    /// The connection was idle for the whole time.
    Idle,
    /// The client takes its responses too slowly, or not at all.
    Stalled,
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
    pub fn new(
        send_progress: Arc<SendProgress>,
        write_timeout: Duration,
    ) -> Arc<ActiveRequestCounter> {
        Arc::new(ActiveRequestCounter {
            count: AtomicUsize::new(0),
            created: Instant::now(),
            last_end_ms: AtomicU64::new(0),
            request_ended: Notify::new(),
            unsent: Arc::default(),
            send_progress,
            write_timeout,
        })
    }

    /// Returns the number of active requests.
    pub fn count_active(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns true if no byte waits in the h2 crate or for the client.
    pub fn has_sent_all_bytes(&self) -> bool {
        self.unsent.total() == 0 && !self.send_progress.is_unflushed()
    }

    /// Returns true if no request is active and no byte waits for the client.
    pub fn is_idle(&self) -> bool {
        self.count_active() == 0 && !self.send_progress.is_unflushed()
    }

    /// Waits until for `time` no request has been active and no byte has waited for the client,
    /// counted from `start` or from the end of the last request, whichever is later. One wait lasts
    /// through many requests: a new timer for each request would cost more than a timer that fires
    /// too early. Poll this wait after the h2 crate's connection, in the same task.
    pub async fn wait_until_idle_for(&self, time: Duration, start: Instant) -> IdleOutcome {
        let mut idle_since = start;
        loop {
            sleep_until(idle_since + time).await;
            let is_busy = !self.is_idle();
            if is_busy && !self.wait_until_idle().await {
                return IdleOutcome::Stalled;
            }
            let last_end = Duration::from_millis(self.last_end_ms.load(Ordering::SeqCst));
            let seen = if is_busy { Instant::now() } else { start.max(self.created + last_end) };
            if seen <= idle_since {
                return IdleOutcome::Idle;
            }
            idle_since = seen;
        }
    }

    /// Waits until no request is active and no byte waits for the client. Returns false if the
    /// client takes its responses too slowly.
    async fn wait_until_idle(&self) -> bool {
        let all_sent = async {
            loop {
                while self.count_active() > 0 {
                    self.request_ended.notified().await;
                }
                if !self.send_progress.is_unflushed() {
                    return;
                }
                // The poll of the h2 crate's connection wakes the task once bytes can be sent.
                let is_flushed = || !self.send_progress.is_unflushed();
                poll_fn(|_| if is_flushed() { Poll::Ready(()) } else { Poll::Pending }).await;
            }
        };
        let mut all_sent = std::pin::pin!(all_sent);
        loop {
            let written_before = self.send_progress.written_bytes();
            let last_end_before = self.last_end_ms.load(Ordering::SeqCst);
            let parts_before = self.unsent.begun_parts();
            if timeout(self.write_timeout, &mut all_sent).await.is_ok() {
                return true;
            }
            let has_unsent = self.unsent.total() > 0 || self.send_progress.is_unflushed();
            let written = self.send_progress.written_bytes() - written_before;
            let has_request_ended = self.last_end_ms.load(Ordering::SeqCst) != last_end_before;
            // A client takes all of a quiet stream of events, but the events have few bytes.
            let has_taken_parts = self.unsent.sent_parts() >= parts_before;
            let has_taken_bytes = written >= MIN_BYTES_IN_WRITE_TIMEOUT;
            if has_unsent && !has_request_ended && !has_taken_parts && !has_taken_bytes {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
