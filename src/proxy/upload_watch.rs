//! Watches the body of an HTTP/2 request that is streamed to a server. Pingora has no timeout for
//! the reads of such a body, and waits for its end even after the server has answered.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::upstream::GuardedSocket;
use crate::gate::RequestContext;

/// How long a request may take to end once its server's connection was shut down.
const END_TIMEOUT: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The upload of the request that this task serves.
    static UPLOAD: Arc<Mutex<Upload>>;
}

/// What is known of a request's body.
#[derive(Default)]
struct Upload {
    /// When the last part arrived; `None` before the exchange begins, and at the end of the body.
    last_part_at: Option<Instant>,
    /// The connection to the server.
    server_socket: Option<Arc<GuardedSocket>>,
    is_response_complete: bool,
    is_too_slow: bool,
    /// The state of a request that was dropped before it was logged.
    unlogged: Option<RequestContext>,
}

/// Serves a request of HTTP/2 with a body. If the client sends nothing of its body for
/// `body_timeout` although the server takes what arrives, ends the exchange, or else drops the
/// request, which resets its stream. Returns the state of a request that was dropped before it was
/// logged.
pub async fn serve_watched(
    served: impl Future<Output = ()>,
    body_timeout: Duration,
) -> Option<RequestContext> {
    let upload = Arc::new(Mutex::new(Upload::default()));
    {
        let mut served = pin!(UPLOAD.scope(Arc::clone(&upload), served));
        tokio::select! {
            biased;
            () = &mut served => {}
            () = wait_until_too_slow(&upload, body_timeout) => {
                // Without a response so far, the client gets 408.
                let _ = tokio::time::timeout(END_TIMEOUT, served).await;
            }
        }
    }
    lock(&upload).unlogged.take()
}

/// Waits until the client is too slow. Then shuts the connection to the server down.
async fn wait_until_too_slow(upload: &Mutex<Upload>, body_timeout: Duration) {
    loop {
        let last_part_at = lock(upload).last_part_at;
        let due_at = last_part_at.unwrap_or_else(Instant::now) + body_timeout;
        tokio::time::sleep_until(due_at.into()).await;
        let mut upload = lock(upload);
        let is_waiting_for_client =
            upload.last_part_at.is_some_and(|at| at.elapsed() >= body_timeout);
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
            // The client can't send, because the server does not read. The guard ends that, if the
            // server has a deadline.
            upload.last_part_at = Some(Instant::now());
        }
    }
}

/// Records that a request with a streamed body has a connection to a server; `None` if that can't
/// be watched.
pub(super) fn record_connection(socket: Option<&Arc<GuardedSocket>>) {
    change(|upload| {
        upload.server_socket = socket.cloned();
        upload.last_part_at = Some(Instant::now());
    });
}

/// Records that a part of a streamed body has arrived.
pub(super) fn record_part(is_last: bool) {
    change(|upload| upload.last_part_at = Some(Instant::now()).filter(|_| !is_last));
}

/// Records that the whole response of the server has arrived.
pub(super) fn record_response_end() {
    change(|upload| upload.is_response_complete = true);
}

/// Returns true if the exchange was ended because the client was too slow.
pub(super) fn is_too_slow() -> bool {
    let mut is_too_slow = false;
    change(|upload| is_too_slow = upload.is_too_slow);
    is_too_slow
}

/// Keeps the state of a request that is dropped before it was logged.
pub(super) fn keep_unlogged(context: RequestContext) {
    change(|upload| upload.unlogged = Some(context));
}

/// Changes the upload of this task; does nothing if none is watched.
fn change(change: impl FnOnce(&mut Upload)) {
    let _ = UPLOAD.try_with(|upload| change(&mut lock(upload)));
}

fn lock(upload: &Mutex<Upload>) -> MutexGuard<'_, Upload> {
    upload.lock().unwrap_or_else(PoisonError::into_inner)
}
