//! Request bodies. riskgate buffers a short body before it asks an upstream server, and waits for
//! the start of a body. After a response it reads and discards the rest of a body.
//!
//! Owns the limits of time and size of these three operations. It never interprets a body. The
//! parser of the request head decides whether a request may have a body.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, EXPECT};
use pingora::protocols::http::ServerSession;
use pingora::{Error, ErrorType, Result};
use tokio::time::timeout;

use crate::message::request_head::list_members;
use crate::proxy::upstream::Upstreams;

/// riskgate reads a body of at most this many bytes completely before it asks a server, because
/// Pingora keeps as many bytes for a retry. After a response over HTTP/2, riskgate reads and
/// discards at most this many bytes of the body.
pub const MAX_BUFFERED_BODY_BYTES: usize = 64 * 1024;
/// The longest time for which a body is read and discarded.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads a short body completely, so that a slow client keeps no server waiting and holds no
/// exchange permit meanwhile. Returns the body, or `None` if it was not read here. If riskgate
/// already waits for too many bodies, the request fails with the error of too many exchanges. A
/// long body, or one of unknown length, is not read here: Pingora forwards it as it arrives.
pub async fn buffer_short_body(
    client: &mut ServerSession,
    client_address: Option<IpAddr>,
    upstreams: &Upstreams,
    time_left: Duration,
) -> Result<Option<Bytes>> {
    if client.is_body_done() {
        // There is none, or it has been read already.
        let is_kept = !client.retry_buffer_truncated();
        return Ok(is_kept.then(|| client.get_retry_buffer().unwrap_or_default()));
    }
    let length = client.req_header().headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if !length.is_some_and(|length| (1..=MAX_BUFFERED_BODY_BYTES).contains(&length)) {
        return Ok(None);
    }
    client.enable_retry_buffering();
    read_body_to_end(client, client_address, upstreams, time_left).await?;
    Ok(client.get_retry_buffer())
}

async fn read_body_to_end(
    client: &mut ServerSession,
    client_address: Option<IpAddr>,
    upstreams: &Upstreams,
    time_left: Duration,
) -> Result<()> {
    let read_to_end = async {
        while client.read_request_body().await?.is_some() {}
        Ok(())
    };
    let timed_out = |_| Error::explain(ErrorType::ReadTimedout, "the request body");
    let mut read_to_end = pin!(read_to_end);
    // A body that has already arrived needs no body permit, because riskgate doesn't wait for it.
    let result = match poll_fn(|context| Poll::Ready(read_to_end.as_mut().poll(context))).await {
        Poll::Ready(result) => result,
        Poll::Pending => {
            let _permit =
                upstreams.acquire_body_permit(client_address).ok_or_else(too_many_bodies_error)?;
            timeout(time_left, read_to_end).await.map_err(timed_out).flatten()
        }
    };
    result.map_err(|error| error.into_down())
}

fn too_many_bodies_error() -> Box<Error> {
    Error::explain(ErrorType::ConnectError, "too many request bodies are being received").into_up()
}

/// Returns true if the client waits for a 100 that riskgate can't send: over HTTP/2, Pingora sends
/// no 100. Over HTTP/1.1, riskgate sends the 100 when Pingora reads the body.
pub fn awaits_impossible_continue(client: &mut ServerSession) -> bool {
    let expectation = client.req_header().headers.get(EXPECT);
    let awaits_continue =
        expectation.is_some_and(|value| list_members(value.as_bytes()).next().is_some());
    awaits_continue && client.is_http2() && !client.is_body_done()
}

/// Removes `Expect` from the request header, so that the upstream server sends no second 100.
pub fn remove_expect(client: &mut ServerSession) {
    client.req_header_mut().remove_header(&EXPECT);
}

/// Waits for the start of a body. Returns true if it arrives within `max_wait`; Pingora keeps the
/// bytes for the upstream server. Returns an error if riskgate already waits for too many bodies,
/// or if the read fails.
pub async fn wait_for_body_start(
    client: &mut ServerSession,
    client_address: Option<IpAddr>,
    upstreams: &Upstreams,
    max_wait: Duration,
) -> Result<bool> {
    let _permit =
        upstreams.acquire_body_permit(client_address).ok_or_else(too_many_bodies_error)?;
    client.enable_retry_buffering();
    match timeout(max_wait, client.read_request_body()).await {
        Ok(read) => read.map(|_| true).map_err(|error| error.into_down()),
        Err(_) => Ok(false),
    }
}

/// Reads and discards the rest of a body after an HTTP/2 response. A client that is still sending a
/// short body then gets no reset. If the body is longer, its stream is reset with NO_ERROR
/// (RFC 9113 section 8.1).
pub async fn discard_rest_of_body(client: &mut ServerSession) {
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
