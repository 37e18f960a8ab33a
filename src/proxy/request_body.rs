//! Bodies of requests: taken before a server is asked, waited for, or read and dropped.
//!
//! It bounds how long that takes and how much of it there is. What a body means is the server's
//! business, and whether one may come at all was decided by its header.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT};
use pingora_core::Result;
use pingora_core::protocols::http::ServerSession;
use pingora_error::{Error, ErrorType};
use tokio::time::timeout;

use crate::message::request_head::list_members;
use crate::proxy::upstream::Upstreams;

/// A body of so many bytes is taken whole before a server is asked: as much as Pingora keeps for
/// another try. Behind a refusal it is read to its end, too.
pub const MAX_BUFFERED_BODY: usize = 64 * 1024;
/// How long a body is read that nobody wants any more.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes a short body whole, so that a client who sends it slowly keeps no server waiting, and no
/// place from others; where too many are waited for already, it is as with too many exchanges. A
/// long one, or one that does not say how long it is, crosses as it comes.
pub async fn buffer_short_body(
    client: &mut ServerSession,
    address: Option<IpAddr>,
    upstreams: &Upstreams,
    left: Duration,
) -> Result<()> {
    let length = client.req_header().headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if !length.is_some_and(|length| (1..=MAX_BUFFERED_BODY).contains(&length)) {
        return Ok(());
    }
    client.enable_retry_buffering();
    let whole = async {
        while client.read_request_body().await?.is_some() {}
        Ok(())
    };
    let late = |_| Error::explain(ErrorType::ReadTimedout, "the request body");
    let mut whole = pin!(whole);
    // What is there already is not waited for.
    let taken = match poll_fn(|context| Poll::Ready(whole.as_mut().poll(context))).await {
        Poll::Ready(taken) => taken,
        Poll::Pending => {
            let _permit = upstreams.acquire_body(address).ok_or_else(too_many_bodies)?;
            timeout(left, whole).await.map_err(late).flatten()
        }
    };
    taken.map_err(|error| error.into_down())
}

fn too_many_bodies() -> Box<Error> {
    Error::explain(ErrorType::ConnectError, "too many request bodies are being received").into_up()
}

/// Takes the expectation out of a header, and says whether the client waits for a 100 that nobody
/// sends. On HTTP/1.1 it is sent where the body is read; Pingora can't send one on HTTP/2.
pub fn remove_expectation(client: &mut ServerSession) -> bool {
    // Beside the one that is sent here, a server's own is not passed on.
    let expectation = client.req_header_mut().remove_header(&EXPECT);
    let waits = expectation.is_some_and(|value| list_members(value.as_bytes()).next().is_some());
    waits && client.is_http2() && !client.is_body_done()
}

/// Whether a body begins within this time; its beginning is kept for the server.
pub async fn wait_for_body_start(
    client: &mut ServerSession,
    address: Option<IpAddr>,
    upstreams: &Upstreams,
    time: Duration,
) -> Result<bool> {
    let _permit = upstreams.acquire_body(address).ok_or_else(too_many_bodies)?;
    client.enable_retry_buffering();
    match timeout(time, client.read_request_body()).await {
        Ok(read) => read.map(|_| true).map_err(|error| error.into_down()),
        Err(_) => Ok(false),
    }
}

/// Reads and drops what still comes of a body behind the answer to it, so that a client which sends
/// on is not reset for little. A longer one is reset without an error (RFC 9113 section 8.1).
pub async fn discard_body(client: &mut ServerSession) {
    let rest = async {
        let mut left = MAX_BUFFERED_BODY;
        while left > 0
            && !client.is_body_done()
            && let Ok(Some(bytes)) = client.read_request_body().await
        {
            left = left.saturating_sub(bytes.len());
        }
    };
    // One that comes too slowly is reset.
    let _ = timeout(DISCARD_TIMEOUT, rest).await;
}
