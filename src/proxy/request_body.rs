//! Request bodies: riskgate buffers a short body before it asks an upstream server, waits for the
//! start of a body, and reads and discards a body after a refusal.
//!
//! Owns the limits of time and size of these three. It never interprets a body, and never decides
//! whether a request may have a body: the parser of the head does.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT};
use pingora::protocols::http::ServerSession;
use pingora::{Error, ErrorType, Result};
use tokio::time::timeout;

use crate::message::request_head::list_members;
use crate::proxy::upstream::Upstreams;

/// riskgate reads a body of at most this many bytes completely before it asks a server, because
/// Pingora keeps as many bytes for a retry. After a refusal, riskgate reads and discards at most
/// this many bytes of the body.
pub const MAX_BUFFERED_BODY_BYTES: usize = 64 * 1024;
/// The longest time for which a body is read and discarded.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads a short body completely, so that a slow client keeps no server waiting and holds no
/// exchange permit meanwhile. If too many bodies are awaited already, the request fails as it does
/// with too many exchanges. A long body, or a body of unknown length, is forwarded as it arrives.
pub async fn buffer_short_body(
    client: &mut ServerSession,
    address: Option<IpAddr>,
    upstreams: &Upstreams,
    time_left: Duration,
) -> Result<()> {
    let length = client.req_header().headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if !length.is_some_and(|length| (1..=MAX_BUFFERED_BODY_BYTES).contains(&length)) {
        return Ok(());
    }
    client.enable_retry_buffering();
    let read_to_end = async {
        while client.read_request_body().await?.is_some() {}
        Ok(())
    };
    let timed_out = |_| Error::explain(ErrorType::ReadTimedout, "the request body");
    let mut read_to_end = pin!(read_to_end);
    // A body that has arrived already needs no permit.
    let result = match poll_fn(|context| Poll::Ready(read_to_end.as_mut().poll(context))).await {
        Poll::Ready(result) => result,
        Poll::Pending => {
            let _permit =
                upstreams.acquire_body_permit(address).ok_or_else(too_many_bodies_error)?;
            timeout(time_left, read_to_end).await.map_err(timed_out).flatten()
        }
    };
    result.map_err(|error| error.into_down())
}

fn too_many_bodies_error() -> Box<Error> {
    Error::explain(ErrorType::ConnectError, "too many request bodies are being received").into_up()
}

/// Removes `Expect` from the request header. Returns true if the client waits for a 100 that
/// riskgate can't send, which happens on HTTP/2: Pingora can't send a 100 there. On HTTP/1.1 the
/// 100 is sent when the body is read.
pub fn remove_expectation(client: &mut ServerSession) -> bool {
    // The upstream server must not send a 100 of its own as well.
    let expectation = client.req_header_mut().remove_header(&EXPECT);
    let awaits_continue =
        expectation.is_some_and(|value| list_members(value.as_bytes()).next().is_some());
    awaits_continue && client.is_http2() && !client.is_body_done()
}

/// Waits for the start of a body. Returns true if it arrives within this time; Pingora keeps it for
/// the upstream server. Returns an error if too many bodies are awaited already, or if the read
/// fails.
pub async fn wait_for_body_start(
    client: &mut ServerSession,
    address: Option<IpAddr>,
    upstreams: &Upstreams,
    max_wait: Duration,
) -> Result<bool> {
    let _permit = upstreams.acquire_body_permit(address).ok_or_else(too_many_bodies_error)?;
    client.enable_retry_buffering();
    match timeout(max_wait, client.read_request_body()).await {
        Ok(read) => read.map(|_| true).map_err(|error| error.into_down()),
        Err(_) => Ok(false),
    }
}

/// Reads and discards the rest of a body after the response, so that a client which is still
/// sending a short body doesn't get a reset. The stream of a longer body is reset without an error
/// (RFC 9113 section 8.1).
pub async fn discard_body(client: &mut ServerSession) {
    let rest = async {
        let mut left = MAX_BUFFERED_BODY_BYTES;
        while left > 0
            && !client.is_body_done()
            && let Ok(Some(bytes)) = client.read_request_body().await
        {
            left = left.saturating_sub(bytes.len());
        }
    };
    // If the body arrives too slowly, the stream is reset.
    let _ = timeout(DISCARD_TIMEOUT, rest).await;
}
