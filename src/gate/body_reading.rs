//! Reads the body of a request that riskgate answers itself, or whose body must be empty. After a
//! response over HTTP/2, riskgate reads and discards the rest of a body.

use std::time::Duration;

use pingora::Result;
use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;
use tokio::time;

use crate::exchange::BodyFault;
use crate::model::refusal::Refusal;

use super::held_bytes::{
    HeldBytesGuard, NO_MEMORY_REFUSAL, PINGORA_TASK_BYTES, waiting_request_bytes,
};
use super::request_context::RequestContext;
use super::session::send_continue_if_awaited;
use super::state::Gate;

/// The longest time for which riskgate discards a body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes of a body that riskgate discards.
const MAX_DISCARDED_BODY_BYTES: usize = 64 * 1024;

/// The bounds of a body.
pub(super) struct BodyBounds {
    /// The most bytes.
    pub max_bytes: usize,
    /// The longest time until the body has ended.
    pub timeout: Duration,
    /// The refusal of a body with more bytes.
    pub too_long: Refusal,
}

/// Reads the whole body. Returns a refusal if the body is too long, too late or malformed, or if
/// the memory for bodies is used up.
///
/// # Errors
/// Returns an error if riskgate can't read from the client or can't write to it.
pub(super) async fn read_whole_body(
    session: &mut Session,
    bounds: BodyBounds,
    held: &mut HeldBytesGuard,
) -> Result<Result<Vec<u8>, Refusal>> {
    send_continue_if_awaited(session).await?;
    let client = session.as_downstream_mut();
    let request_bytes = waiting_request_bytes(client.req_header(), PINGORA_TASK_BYTES);
    let read_to_end = async {
        let mut body = Vec::new();
        loop {
            let read = client.read_request_body();
            let waiting_bytes = body.len().max(request_bytes);
            let Some(read) = held.count_during(read, waiting_bytes).await else {
                return Ok(Err(NO_MEMORY_REFUSAL));
            };
            let Some(bytes) = read? else { return Ok(Ok(body)) };
            if body.len() + bytes.len() > bounds.max_bytes {
                return Ok(Err(bounds.too_long));
            }
            if !held.grow_to(body.len() + bytes.len()) {
                return Ok(Err(NO_MEMORY_REFUSAL));
            }
            body.extend_from_slice(&bytes);
        }
    };
    let read: std::result::Result<Result<_>, _> = time::timeout(bounds.timeout, read_to_end).await;
    match read {
        Ok(Ok(read)) => {
            held.shrink_to(read.as_ref().map_or(0, Vec::len));
            Ok(read)
        }
        Ok(Err(error)) => match BodyFault::find_in(&error) {
            Some(fault) => Ok(Err(fault.refusal())),
            None => Err(error.into_down()),
        },
        Err(_) => Ok(Err(Refusal::RequestTimeout)),
    }
}

impl Gate {
    /// Reads and discards the rest of a body if the response went out over HTTP/2: see
    /// [`discard_rest_of_body`].
    pub(crate) async fn discard_body_over_http2(
        &self,
        session: &mut Session,
        ctx: &RequestContext,
    ) {
        if session.is_http2() && session.response_written().is_some() {
            let held = self.begin_held_body(ctx);
            let client = session.as_downstream_mut();
            let request_bytes = waiting_request_bytes(client.req_header(), PINGORA_TASK_BYTES);
            discard_rest_of_body(client, held, request_bytes).await;
        }
    }
}

/// Reads and discards the rest of a body after an HTTP/2 response, so that a client that is still
/// sending a short body gets no reset. The client gets a reset of the stream with NO_ERROR (RFC
/// 9113 section 8.1) if the body is longer or too slow, or if riskgate may not hold
/// `request_bytes`.
pub(crate) async fn discard_rest_of_body(
    client: &mut ServerSession,
    mut held: HeldBytesGuard,
    request_bytes: usize,
) {
    if !held.grow_to(request_bytes) {
        return;
    }
    let rest = async {
        let mut left = MAX_DISCARDED_BODY_BYTES;
        while left > 0
            && !client.is_body_done()
            && let Ok(Some(bytes)) = client.read_request_body().await
        {
            left = left.saturating_sub(bytes.len());
        }
    };
    // An error means that the body was too slow: the end of the session resets the stream.
    let _ = time::timeout(DISCARD_TIMEOUT, rest).await;
}
