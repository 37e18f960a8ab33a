//! The lane's connection: reads what arrives, sends what the lane answers.

use bytes::Buf;
use tokio::time::Instant;

use super::boxed::apart;
use super::client_io::Wire;
use super::context::ConnectionContext;
use super::exchange::{Fate, cross};
use super::fast_path::{Lane, Next};
use super::idle_wait::{End, Silence};
use super::options::DoorOptions;

/// Bytes of answers in one batch, beyond which it is a long one.
const LONG: usize = 4 * 1024;

/// Where a connection goes on.
pub(super) enum Onward {
    /// On the general way: since when it is without a request, and until when it may be.
    General((Instant, Instant)),
    /// Nowhere: it has ended.
    Ended,
}

/// Answers plain requests until one comes that is not, or that is not whole, or the connection
/// ends. It has been without a request since `answered`; the next must begin by `deadline`.
pub(super) async fn serve_plain(
    context: &ConnectionContext,
    wire: &mut Wire,
    silence: &mut Silence,
    mut answered: Instant,
    mut deadline: Instant,
) -> Onward {
    let client = wire.client_address();
    let servers = context.servers.as_ref().filter(|servers| servers.upstreams.are_plain());
    let DoorOptions { write_timeout, header_timeout, .. } = context.options;
    let (gate, sizes) = (context.gate.clone(), context.options.sizes.clone());
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
        if context.traffic.is_draining() {
            return Onward::General((answered, deadline));
        }
        let under_way = context.traffic.begin();
        let mut out = Vec::with_capacity(1024.max(3 * wire.ahead.len()));
        let (done, next) = lane.answer(&wire.ahead, &mut out);
        wire.ahead.advance(done);
        let is_answered = done > 0 || matches!(next, Next::Cross(..));
        let fate = match next {
            Next::Cross(servers, crossing) => {
                apart(|| cross(context, servers, wire, &mut lane, *crossing, &out)).await
            }
            _ if !wire.send_bytes(&out, write_timeout, None).await => Fate::Broken,
            Next::Close => Fate::Closes,
            // What comes in pieces is put together on the general way.
            Next::Request if !wire.ahead.is_empty() => Fate::General,
            Next::Request | Next::Sending => Fate::Stays,
            Next::HandOver => Fate::General,
        };
        if is_answered {
            answered = Instant::now();
            deadline = answered + context.options.keepalive_timeout;
        }
        match fate {
            Fate::Stays => {}
            Fate::General => return Onward::General((answered, deadline)),
            Fate::Broken => return Onward::Ended,
            Fate::Closes => {
                drop(under_way);
                apart(|| wire.close_connection(Instant::now(), header_timeout, &context.traffic))
                    .await;
                return Onward::Ended;
            }
        }
        if out.len() > LONG {
            // Others have their turn before the next batch.
            tokio::task::yield_now().await;
        }
    }
}
