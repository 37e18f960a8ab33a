//! The loop of a connection on the fast path: it reads requests and sends responses.

use bytes::Buf;
use tokio::time::Instant;

use super::boxed::box_future;
use super::client_io::ClientIo;
use super::context::ListenerContext;
use super::exchange::{Disposition, proxy_request};
use super::fast_path::{Action, FastPath};
use super::idle_wait::{IdleOutcome, IdleWait};
use super::options::DownstreamOptions;

/// If a batch of responses has more bytes than this, the connection yields to other tasks.
const YIELD_THRESHOLD_BYTES: usize = 4 * 1024;

/// How the fast path leaves a connection.
pub(super) enum FastPathExit {
    /// The Pingora path takes over: the time of the last response, and the deadline for the next
    /// request to start.
    ToPingora((Instant, Instant)),
    /// The connection has ended.
    Ended,
}

/// Serves plain requests until the connection ends, or until a request is incomplete or not plain.
/// The connection has been idle since `answered_at`; the next request must start by `deadline`.
pub(super) async fn serve_fast_path(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    idle_wait: &mut IdleWait,
    mut answered_at: Instant,
    mut deadline: Instant,
) -> FastPathExit {
    let client = client_io.client_address();
    let servers = context.upstreams.as_ref().filter(|servers| servers.upstreams.is_cleartext());
    let DownstreamOptions { write_timeout, header_timeout, .. } = context.options;
    let (gate, sizes) = (context.gate.clone(), context.options.sizes.clone());
    let mut fast_path = FastPath::new(gate, sizes, client, servers);
    loop {
        if client_io.read_buf.is_empty() {
            match idle_wait.wait(client_io, deadline).await {
                IdleOutcome::Readable => {}
                IdleOutcome::Ended => return FastPathExit::Ended,
                // The Pingora path handles the drain.
                IdleOutcome::Shutdown => return FastPathExit::ToPingora((answered_at, deadline)),
            }
        }
        if context.tracker.is_draining() {
            return FastPathExit::ToPingora((answered_at, deadline));
        }
        let in_flight = context.tracker.track_request();
        let mut out = Vec::with_capacity(1024.max(3 * client_io.read_buf.len()));
        let (consumed, action) = fast_path.answer_requests(&client_io.read_buf, &mut out);
        client_io.read_buf.advance(consumed);
        let is_answered = consumed > 0 || matches!(action, Action::Proxy(..));
        let disposition = match action {
            Action::Proxy(servers, request) => {
                box_future(|| {
                    proxy_request(context, servers, client_io, &mut fast_path, *request, &out)
                })
                .await
            }
            _ if !client_io.send_bytes(&out, write_timeout, None).await => Disposition::Broken,
            Action::Close => Disposition::Close,
            // The Pingora path waits for the rest of an incomplete request.
            Action::ReadMore if !client_io.read_buf.is_empty() => Disposition::Fallback,
            Action::ReadMore | Action::Flush => Disposition::KeepAlive,
            Action::Fallback => Disposition::Fallback,
        };
        if is_answered {
            answered_at = Instant::now();
            deadline = answered_at + context.options.keepalive_timeout;
        }
        match disposition {
            Disposition::KeepAlive => {}
            Disposition::Fallback => return FastPathExit::ToPingora((answered_at, deadline)),
            Disposition::Broken => return FastPathExit::Ended,
            Disposition::Close => {
                drop(in_flight);
                box_future(|| {
                    client_io.close_connection(Instant::now(), header_timeout, &context.tracker)
                })
                .await;
                return FastPathExit::Ended;
            }
        }
        if out.len() > YIELD_THRESHOLD_BYTES {
            // Other tasks run before the next batch.
            tokio::task::yield_now().await;
        }
    }
}
