//! The time between two requests of a connection: until bytes come, it ends, or the process does.
//!
//! What it takes to wait is made once for a connection and not for each request.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Poll, ready};

use pingora_core::server::ShutdownWatch;
use tokio::time::{Instant, Sleep, sleep_until};

use super::client_io::ClientIo;
use super::connection_tracker::ConnectionTracker;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleOutcome {
    /// There are bytes.
    Readable,
    /// The connection has ended, or the deadline has passed.
    Ended,
    /// The process is to end.
    Shutdown,
}

/// Waits, once for each request of a connection.
pub(super) struct IdleWait {
    timer: Pin<Box<Sleep>>,
    /// Until the process is to end; none once it is.
    shutdown_signal: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl IdleWait {
    /// Of a connection on which nothing was said yet.
    pub fn new(deadline: Instant, shutdown: &ShutdownWatch) -> IdleWait {
        let mut shutdown = shutdown.clone();
        // An error means that there is nobody left to say stop: as good.
        let stopped = async move { drop(shutdown.wait_for(|stop| *stop).await) };
        IdleWait {
            timer: Box::pin(sleep_until(deadline)),
            shutdown_signal: Some(Box::pin(stopped)),
        }
    }

    /// Waits for its end, at most until the deadline. The timer is set anew only when it goes off,
    /// or would go off too late.
    pub async fn wait(&mut self, client_io: &mut ClientIo, deadline: Instant) -> IdleOutcome {
        if self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        poll_fn(|context| {
            if let Poll::Ready(more) = client_io.poll_read_more(context) {
                return Poll::Ready(if more { IdleOutcome::Readable } else { IdleOutcome::Ended });
            }
            while self.timer.as_mut().poll(context).is_ready() {
                if self.timer.deadline() >= deadline {
                    return Poll::Ready(IdleOutcome::Ended);
                }
                self.timer.as_mut().reset(deadline);
            }
            let Some(stopped) = &mut self.shutdown_signal else {
                return Poll::Ready(IdleOutcome::Shutdown);
            };
            ready!(stopped.as_mut().poll(context));
            self.shutdown_signal = None;
            Poll::Ready(IdleOutcome::Shutdown)
        })
        .await
    }

    /// Waits for bytes on a connection that has been silent since `answered`; `false` if none come.
    pub async fn await_bytes(
        &mut self,
        client_io: &mut ClientIo,
        traffic: &ConnectionTracker,
        answered: Instant,
        deadline: Instant,
    ) -> bool {
        !client_io.read_buf.is_empty()
            || match self.wait(client_io, deadline).await {
                IdleOutcome::Readable => true,
                IdleOutcome::Ended => false,
                // Its next request may be under way.
                IdleOutcome::Shutdown => {
                    let drain_keepalive = answered + traffic.drain_keepalive();
                    client_io.read_more(deadline.min(drain_keepalive)).await
                }
            }
    }
}
