//! The lane's connection: reads what arrives, sends what the lane answers.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use bytes::Buf;
use pingora_proxy::ProxyHttp;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use super::Door;
use super::silence::{End, Silence};
use super::wire::Wire;
use crate::lane::{Lane, Next};

/// Bytes of answers in one batch, beyond which it is a long one.
const LONG: usize = 4 * 1024;

/// Where a connection goes on.
pub(super) enum Onward {
    /// On the general way: since when it is without a request, and until when it may be.
    General((Instant, Instant)),
    /// Nowhere: it has ended.
    Ended,
}

impl<P> Door<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// Answers plain requests until one comes that is not, or that is not whole, or the connection
    /// ends. It has been without a request since `answered`; the next must begin by `deadline`.
    pub(super) async fn serve_plain(
        &self,
        wire: &mut Wire,
        silence: &mut Silence,
        mut answered: Instant,
        mut deadline: Instant,
    ) -> Onward {
        let client = wire.client_address();
        let mut lane = Lane::new(self.gate.clone(), self.options.sizes.clone(), client);
        loop {
            if wire.ahead.is_empty() {
                match silence.end(wire, deadline).await {
                    End::Bytes => {}
                    End::Over => return Onward::Ended,
                    // The general way knows how to end.
                    End::Stop => return Onward::General((answered, deadline)),
                }
            }
            if self.traffic.is_draining() {
                return Onward::General((answered, deadline));
            }
            let _under_way = self.traffic.begin();
            let mut out = Vec::with_capacity(1024.max(3 * wire.ahead.len()));
            let (done, next) = lane.answer(&wire.ahead, &mut out);
            wire.ahead.advance(done);
            if !out.is_empty() {
                if !self.send(wire, &out).await {
                    return Onward::Ended;
                }
                answered = Instant::now();
                deadline = answered + self.options.keepalive_timeout;
                if out.len() > LONG {
                    // Others have their turn before the next batch.
                    tokio::task::yield_now().await;
                }
            }
            match next {
                Next::Close => {
                    // Whoever is gone is told nothing.
                    let _ = timeout(self.options.write_timeout, wire.shutdown()).await;
                    wire.linger().await;
                    return Onward::Ended;
                }
                Next::HandOver => return Onward::General((answered, deadline)),
                // What comes in pieces is put together on the general way.
                Next::Request if !wire.ahead.is_empty() => {
                    return Onward::General((answered, deadline));
                }
                Next::Request | Next::Sending => {}
            }
        }
    }

    /// Whether these bytes could be sent in time. Mostly they go at once: only who waits needs a
    /// clock.
    async fn send(&self, wire: &mut Wire, bytes: &[u8]) -> bool {
        let mut sending = pin!(wire.send(bytes));
        let sent = match poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await {
            Poll::Ready(sent) => Ok(sent),
            Poll::Pending => timeout(self.options.write_timeout, sending).await,
        };
        matches!(sent, Ok(Ok(())))
    }
}
