//! The lane's connection: reads what arrives, sends what the lane answers.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use bytes::Buf;
use pingora_proxy::ProxyHttp;
use tokio::time::{Instant, timeout_at};

use super::client_io::Wire;
use super::exchange::Fate;
use super::idle_wait::{End, Silence};
use super::{Door, apart};
use crate::downstream::fast_path::{Lane, Next};

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
        let servers = self.servers.as_ref().filter(|servers| servers.upstreams.are_plain());
        let (gate, sizes) = (self.gate.clone(), self.options.sizes.clone());
        let mut lane = Lane::new(gate, sizes, client, servers);
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
            let under_way = self.traffic.begin();
            let mut out = Vec::with_capacity(1024.max(3 * wire.ahead.len()));
            let (done, next) = lane.answer(&wire.ahead, &mut out);
            wire.ahead.advance(done);
            let is_answered = done > 0 || matches!(next, Next::Cross(..));
            let fate = match next {
                Next::Cross(servers, crossing) => {
                    apart(|| self.cross(servers, wire, &mut lane, *crossing, &out)).await
                }
                _ if !self.send(wire, &out, None).await => Fate::Broken,
                Next::Close => Fate::Closes,
                // What comes in pieces is put together on the general way.
                Next::Request if !wire.ahead.is_empty() => Fate::General,
                Next::Request | Next::Sending => Fate::Stays,
                Next::HandOver => Fate::General,
            };
            if is_answered {
                answered = Instant::now();
                deadline = answered + self.options.keepalive_timeout;
            }
            match fate {
                Fate::Stays => {}
                Fate::General => return Onward::General((answered, deadline)),
                Fate::Broken => return Onward::Ended,
                Fate::Closes => {
                    drop(under_way);
                    apart(|| self.close(wire, Instant::now())).await;
                    return Onward::Ended;
                }
            }
            if out.len() > LONG {
                // Others have their turn before the next batch.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether these bytes could be sent in time, and until `end`. Mostly they go at once: only who
    /// waits needs a clock.
    pub(super) async fn send(&self, wire: &mut Wire, bytes: &[u8], end: Option<Instant>) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let mut sending = pin!(wire.send(bytes));
        let sent = match poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await {
            Poll::Ready(sent) => Ok(sent),
            Poll::Pending => {
                let most = Instant::now() + self.options.write_timeout;
                timeout_at(end.map_or(most, |end| most.min(end)), sending).await
            }
        };
        matches!(sent, Ok(Ok(())))
    }
}
