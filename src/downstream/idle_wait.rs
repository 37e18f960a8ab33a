//! The wait for the next request of a connection: until bytes arrive, the connection ends, the
//! deadline passes, or the process is about to end.
//!
//! An [`IdleWait`] has its timer and its shutdown signal for the whole connection.
//!
//! If the process is about to end, this module limits the wait for the rest of what a client has
//! begun to send.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use pingora::server::ShutdownWatch;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::client_io::ClientIo;
use super::connection_tracker::ConnectionTracker;
use crate::support::test_fault::{TestFault, is_injected};

/// How long a process that is about to end waits at least for the rest of a request header or of a
/// handshake. An honest client sends the rest within round trips.
const UNFINISHED_HEADER_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for `read`, which reads a request header or performs a handshake. Once the process is
/// about to end, waits for [`UNFINISHED_HEADER_TIMEOUT`] or, if that is longer, for as long as the
/// drain keeps idle connections, and then returns `None`. So a client that has sent half a header
/// does not hold up the end of the process.
pub(super) async fn finish_unless_shutdown<T>(
    shutdown: &ShutdownWatch,
    tracker: &ConnectionTracker,
    read: impl Future<Output = T>,
) -> Option<T> {
    let mut shutdown = shutdown.clone();
    let is_late = async move {
        drop(shutdown.wait_for(|stop| *stop).await);
        sleep(UNFINISHED_HEADER_TIMEOUT.max(tracker.drain_keepalive())).await;
    };
    tokio::select! {
        biased;
        done = read => Some(done),
        () = is_late => None,
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleOutcome {
    /// Bytes have arrived.
    Readable,
    /// The connection has ended, or the deadline has passed.
    Ended,
    /// The process is about to end.
    Shutdown,
}

/// Waits for the next request of a connection.
pub(super) struct IdleWait {
    deadline_timer: Pin<Box<Sleep>>,
    /// Resolves when the process is about to end; `None` after that.
    shutdown_signal: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl IdleWait {
    /// Creates the wait of a new connection.
    pub fn new(deadline: Instant, shutdown: &ShutdownWatch) -> IdleWait {
        let mut shutdown = shutdown.clone();
        // `wait_for` fails if the sender is dropped. Then the process is about to end as well.
        let stopped = async move { drop(shutdown.wait_for(|stop| *stop).await) };
        IdleWait {
            deadline_timer: Box::pin(sleep_until(deadline)),
            shutdown_signal: Some(Box::pin(stopped)),
        }
    }

    /// Waits until bytes arrive, the connection ends or the process is about to end, at most until
    /// the deadline. To save work, the timer is not set again for each later deadline. If the timer
    /// fires too early, this function sets it to the deadline.
    pub async fn wait_for_bytes_or_end(
        &mut self,
        client_io: &mut ClientIo,
        deadline: Instant,
    ) -> IdleOutcome {
        if self.deadline_timer.deadline() > deadline {
            self.deadline_timer.as_mut().reset(deadline);
        }
        poll_fn(|context| {
            if let Poll::Ready(more) = client_io.poll_read_more(context) {
                return Poll::Ready(if more { IdleOutcome::Readable } else { IdleOutcome::Ended });
            }
            while self.deadline_timer.as_mut().poll(context).is_ready() {
                if self.deadline_timer.deadline() >= deadline {
                    return Poll::Ready(IdleOutcome::Ended);
                }
                self.deadline_timer.as_mut().reset(deadline);
            }
            let Some(stopped) = &mut self.shutdown_signal else {
                return Poll::Ready(IdleOutcome::Shutdown);
            };
            if is_injected(TestFault::IgnoreDrainWhileIdle) {
                return Poll::Pending;
            }
            ready!(stopped.as_mut().poll(context));
            self.shutdown_signal = None;
            Poll::Ready(IdleOutcome::Shutdown)
        })
        .await
    }

    /// Waits for bytes on a connection that has been idle since `answered_at`, until `deadline`. If
    /// the process is about to end, this function waits until `drain_keepalive` after `answered_at`
    /// at the latest. Returns false if no bytes arrive.
    pub async fn wait_for_request_bytes(
        &mut self,
        client_io: &mut ClientIo,
        tracker: &ConnectionTracker,
        answered_at: Instant,
        deadline: Instant,
    ) -> bool {
        !client_io.read_buf.is_empty()
            || match self.wait_for_bytes_or_end(client_io, deadline).await {
                IdleOutcome::Readable => true,
                IdleOutcome::Ended => false,
                // The client's next request may be under way.
                IdleOutcome::Shutdown => {
                    let drain_keepalive = answered_at + tracker.drain_keepalive();
                    client_io.read_more(deadline.min(drain_keepalive)).await
                }
            }
    }
}
