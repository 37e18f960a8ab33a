//! Watches the body of an HTTP/2 request that riskgate streams to a server. Pingora has no timeout
//! for the reads of such a body, and waits for the end of the body even after the server's answer.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::upstream::GuardedSocket;
use crate::gate::{RequestContext, UnsentResponse};
use crate::support::lock::lock;

/// How long a request may take to end once riskgate has shut its server's connection down.
const SLOW_UPLOAD_END_TIMEOUT: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The upload of the request that this task serves.
    static CURRENT_UPLOAD: Arc<Mutex<Upload>>;
}

/// What riskgate knows of the upload of a request's body.
#[derive(Default)]
struct Upload {
    /// From when the client's silence counts; `None` before the exchange begins, and at the end of
    /// the body.
    silent_since: Option<Instant>,
    /// The connection to the server.
    server_socket: Option<Arc<GuardedSocket>>,
    is_response_complete: bool,
    is_too_slow: bool,
    /// The state of a request that was dropped before it was logged.
    unlogged_request: Option<RequestContext>,
}

/// Serves a request of HTTP/2 with a body. The client is too slow if it sends nothing of its body
/// for `body_timeout`, although the server has taken what has arrived or has answered completely.
/// This function then ends the exchange. If the request does not end after that, this function
/// drops the request, which resets the stream. Returns the state of a request that was dropped
/// before it was logged. Its outcome is `aborted`, unless the client got the whole response.
pub async fn serve_watched(
    served: impl Future<Output = ()>,
    response: &UnsentResponse,
    body_timeout: Duration,
) -> Option<RequestContext> {
    let upload = Arc::new(Mutex::new(Upload::default()));
    let mut is_response_sent = false;
    {
        let mut served = pin!(CURRENT_UPLOAD.scope(Arc::clone(&upload), served));
        tokio::select! {
            biased;
            () = &mut served => {}
            () = wait_until_too_slow(&upload, body_timeout) => {
                // If no response has begun, the client gets 408.
                let _ = tokio::time::timeout(SLOW_UPLOAD_END_TIMEOUT, &mut served).await;
                // Once the stream is reset, nothing is unsent.
                is_response_sent = lock(&upload).is_response_complete && response.is_all_sent();
            }
        }
    }
    let mut dropped = lock(&upload).unlogged_request.take()?;
    if !is_response_sent {
        dropped.set_aborted_outcome();
    }
    Some(dropped)
}

/// Waits until the client is too slow. Then shuts the connection to the server down.
async fn wait_until_too_slow(upload: &Mutex<Upload>, body_timeout: Duration) {
    loop {
        let silent_since = lock(upload).silent_since;
        let due_at = silent_since.unwrap_or_else(Instant::now) + body_timeout;
        tokio::time::sleep_until(due_at.into()).await;
        let mut upload = lock(upload);
        let is_waiting_for_client =
            upload.silent_since.is_some_and(|at| at.elapsed() >= body_timeout);
        let server_has_all =
            || upload.server_socket.as_ref().is_none_or(|socket| socket.has_sent_everything());
        if is_waiting_for_client && (upload.is_response_complete || server_has_all()) {
            upload.is_too_slow = true;
            if let Some(socket) = &upload.server_socket {
                socket.shut_down();
            }
            return;
        }
        if is_waiting_for_client {
            // The client can't send, because the server does not read. If the server has a
            // deadline, the guard ends the exchange.
            upload.silent_since = Some(Instant::now());
        }
    }
}

/// Records that a request with a streamed body has a connection to a server. `socket` is `None` if
/// riskgate can't watch the connection.
pub(super) fn record_connection(socket: Option<&Arc<GuardedSocket>>) {
    change_upload(|upload| {
        upload.server_socket = socket.cloned();
        upload.silent_since = Some(Instant::now());
    });
}

/// Records that a part of a streamed body has arrived.
pub(super) fn record_part(is_last: bool) {
    change_upload(|upload| upload.silent_since = Some(Instant::now()).filter(|_| !is_last));
}

/// Records that the whole response of the server has arrived.
pub(super) fn record_response_end() {
    change_upload(|upload| upload.is_response_complete = true);
}

/// Returns true if riskgate has ended the exchange because the client was too slow.
pub(super) fn is_upload_too_slow() -> bool {
    let mut is_too_slow = false;
    change_upload(|upload| is_too_slow = upload.is_too_slow);
    is_too_slow
}

/// Keeps the state of a request that is being dropped before it was logged.
pub(super) fn keep_unlogged_request(context: RequestContext) {
    change_upload(|upload| upload.unlogged_request = Some(context));
}

/// Changes the upload of this task. Does nothing if the task has no upload.
fn change_upload(change: impl FnOnce(&mut Upload)) {
    let _ = CURRENT_UPLOAD.try_with(|upload| change(&mut lock(upload)));
}
