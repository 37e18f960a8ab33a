//! The loop of a connection on the fast path of HTTP/1.1: it reads requests and sends responses.

use std::time::Duration;

use bytes::Buf;
use tokio::time::Instant;

use super::boxed::box_future;
use super::client_io::{ClientIo, LINGER_TIMEOUT};
use super::context::ListenerContext;
use super::fast_path::{BatchEnd, FastPath, NextAction};
use super::http1_exchange::{ConnectionDisposition, forward_request};
use super::idle_wait::{IdleOutcome, IdleWait};
use super::options::DownstreamOptions;

/// After a batch of responses with more bytes than this, a connection lets other tasks run.
const YIELD_AFTER_RESPONSE_BYTES: usize = 4 * 1024;

/// How the fast path leaves a connection.
pub(super) enum FastPathExit {
    /// The Pingora path takes over. Contains the time since which the connection has been idle, and
    /// the deadline for the next request to start.
    ToPingora((Instant, Instant)),
    /// The connection has ended.
    Ended,
}

/// Serves the requests that the fast path can answer or forward. Returns in each of these cases:
/// - The connection has ended.
/// - The next request is incomplete, or not for the fast path.
/// - The process drains.
///
/// The connection has been idle since `answered_at`; the next request must start by `deadline`.
pub(super) async fn serve_fast_path(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    idle_wait: &mut IdleWait,
    mut answered_at: Instant,
    mut deadline: Instant,
) -> FastPathExit {
    use ConnectionDisposition::{Broken, Close, Fallback, KeepAlive};
    let DownstreamOptions { write_timeout, header_timeout, .. } = context.options;
    let (gate, sizes) = (context.gate.clone(), context.options.request_limits.clone());
    let mut fast_path = FastPath::new(gate, sizes, client_io.connection_facts());
    loop {
        if client_io.read_buf.is_empty() {
            match idle_wait.wait_for_bytes_or_end(client_io, deadline).await {
                IdleOutcome::Readable => {}
                IdleOutcome::Ended => return FastPathExit::Ended,
                // The process is about to end: the Pingora path handles the drain.
                IdleOutcome::Shutdown => return FastPathExit::ToPingora((answered_at, deadline)),
            }
        }
        if context.tracker.is_draining() {
            return FastPathExit::ToPingora((answered_at, deadline));
        }
        let in_flight = context.tracker.track_request();
        let mut out = Vec::with_capacity(1024.max(4 * client_io.read_buf.len()));
        let Some((consumed, action)) =
            answer_arrived_requests(context, &mut fast_path, client_io, &mut out).await
        else {
            return FastPathExit::Ended;
        };
        let is_answered = consumed > 0 || matches!(action, NextAction::Proxy(..));
        let batch_length = out.len();
        let disposition = match action {
            NextAction::Proxy(request) => {
                box_future(|| forward_request(context, client_io, &mut fast_path, request, out))
                    .await
            }
            _ if !client_io.send_bytes(&out, write_timeout, None).await => Broken,
            other => continue_connection(client_io, other, header_timeout).await,
        };
        if is_answered {
            answered_at = Instant::now();
            deadline = answered_at + context.options.keepalive_timeout;
        }
        match disposition {
            KeepAlive => {}
            Fallback => {
                return FastPathExit::ToPingora((answered_at, deadline));
            }
            Broken => return FastPathExit::Ended,
            Close => {
                drop(in_flight);
                box_future(|| {
                    client_io.shut_down_and_linger(Instant::now(), header_timeout, &context.tracker)
                })
                .await;
                return FastPathExit::Ended;
            }
        }
        if batch_length > YIELD_AFTER_RESPONSE_BYTES {
            // Other tasks run before this connection answers its next batch of requests.
            tokio::task::yield_now().await;
        }
    }
}

/// Takes the action that follows a batch of responses, once the responses are sent.
async fn continue_connection(
    client_io: &mut ClientIo,
    action: NextAction,
    header_timeout: Duration,
) -> ConnectionDisposition {
    use ConnectionDisposition::{Close, Fallback, KeepAlive};
    match action {
        NextAction::Close => Close,
        NextAction::Discard(body) => {
            let deadline = Instant::now() + header_timeout.min(LINGER_TIMEOUT);
            match box_future(|| body.discard(client_io, deadline)).await {
                true => KeepAlive,
                false => Close,
            }
        }
        // The Pingora path waits for the rest of an incomplete request.
        NextAction::ReadMore if !client_io.read_buf.is_empty() => Fallback,
        NextAction::ReadMore | NextAction::Flush => KeepAlive,
        NextAction::Fallback | NextAction::Proxy(_) => Fallback,
    }
}

/// Answers the plain requests that have arrived, and writes the responses to `out`. If a request
/// has to wait for the store, this function sends the responses to earlier requests before the
/// wait. Returns the number of bytes consumed and the next action; `None` if riskgate could not
/// send these responses.
async fn answer_arrived_requests(
    context: &ListenerContext,
    fast_path: &mut FastPath,
    client_io: &mut ClientIo,
    out: &mut Vec<u8>,
) -> Option<(usize, NextAction)> {
    // This function takes the buffer out of `client_io`, because a request that waits borrows from
    // the buffer.
    let mut arrived = std::mem::take(&mut client_io.read_buf);
    let (mut consumed, end) = fast_path.answer_requests(&arrived, out);
    let action = match end {
        BatchEnd::Next(action) => action,
        BatchEnd::WaitForStore(waiting) => {
            if !client_io.send_bytes(out, context.options.write_timeout, None).await {
                fast_path.abandon_request(*waiting);
                return None;
            }
            out.clear();
            let is_ending = || context.tracker.is_draining();
            let waited = box_future(|| fast_path.answer_after_wait(*waiting, is_ending, out));
            let (answered_bytes, action) = waited.await;
            consumed += answered_bytes;
            action
        }
    };
    arrived.advance(consumed);
    client_io.read_buf = arrived;
    Some((consumed, action))
}
