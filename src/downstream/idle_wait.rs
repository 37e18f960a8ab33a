//! The time between two requests of a connection: until bytes come, it ends, or the process does.
//!
//! What it takes to wait is made once for a connection and not for each request.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Poll, ready};

use pingora_core::server::ShutdownWatch;
use tokio::time::{Instant, Sleep, sleep_until};

use super::client_io::Wire;
use super::connection_tracker::Traffic;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// There are bytes.
    Bytes,
    /// The connection has ended, or the deadline has passed.
    Over,
    /// The process is to end.
    Stop,
}

/// Waits, once for each request of a connection.
pub(super) struct Silence {
    timer: Pin<Box<Sleep>>,
    /// Until the process is to end; none once it is.
    stopped: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Silence {
    /// Of a connection on which nothing was said yet.
    pub fn new(deadline: Instant, shutdown: &ShutdownWatch) -> Silence {
        let mut shutdown = shutdown.clone();
        // An error means that there is nobody left to say stop: as good.
        let stopped = async move { drop(shutdown.wait_for(|stop| *stop).await) };
        Silence { timer: Box::pin(sleep_until(deadline)), stopped: Some(Box::pin(stopped)) }
    }

    /// Waits for its end, at most until the deadline. The timer is set anew only when it goes off,
    /// or would go off too late.
    pub async fn end(&mut self, wire: &mut Wire, deadline: Instant) -> End {
        if self.timer.deadline() > deadline {
            self.timer.as_mut().reset(deadline);
        }
        poll_fn(|context| {
            if let Poll::Ready(more) = wire.poll_more(context) {
                return Poll::Ready(if more { End::Bytes } else { End::Over });
            }
            while self.timer.as_mut().poll(context).is_ready() {
                if self.timer.deadline() >= deadline {
                    return Poll::Ready(End::Over);
                }
                self.timer.as_mut().reset(deadline);
            }
            let Some(stopped) = &mut self.stopped else { return Poll::Ready(End::Stop) };
            ready!(stopped.as_mut().poll(context));
            self.stopped = None;
            Poll::Ready(End::Stop)
        })
        .await
    }

    /// Waits for bytes on a connection that has been silent since `answered`; `false` if none come.
    pub async fn await_bytes(
        &mut self,
        wire: &mut Wire,
        traffic: &Traffic,
        answered: Instant,
        deadline: Instant,
    ) -> bool {
        !wire.ahead.is_empty()
            || match self.end(wire, deadline).await {
                End::Bytes => true,
                End::Over => false,
                // Its next request may be under way.
                End::Stop => {
                    let last_call = answered + traffic.last_call();
                    wire.read_more(deadline.min(last_call)).await
                }
            }
    }
}
