//! Reads request bodies. In front of its own servers, riskgate holds a short body until it is
//! complete, and only then asks a server. A mounted gate holds such a body only to screen it.
//!
//! Owns two limits: the bytes of a short body, and the time for the start of a body. The limits of
//! the config come from [`BodyOptions`]. The parser of the request head decides whether a request
//! may have a body.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, EXPECT};
use pingora::Error;
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use tokio::time::timeout;

use crate::exchange::BodyFault;
use crate::gate::{
    BodyOptions, HeldBytesGuard, NO_MEMORY_REFUSAL, PINGORA_TASK_BYTES, awaits_continue,
    waiting_request_bytes,
};
use crate::message::request_head::parse_content_length;
use crate::model::refusal::Refusal;

/// riskgate holds a body of at most this many bytes until it is complete. Pingora keeps as many
/// bytes for a retry.
pub const MAX_HELD_BODY_BYTES: usize = 64 * 1024;
/// The longest time to the start of a body whose client waits for a 100 that riskgate can't send.
/// Many clients wait for 1 s and then send the body.
const BODY_START_TIMEOUT: Duration = Duration::from_millis(1_500);

/// A body that riskgate has read, or the start of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBody {
    /// The whole body.
    Whole(Bytes),
    /// The start of a body, or nothing; the rest is still to be read.
    Start(Bytes),
}

/// Why riskgate did not read a body.
pub enum HoldError {
    /// The body is malformed, too long or too slow. The client is still connected.
    Fault(BodyFault),
    /// The memory for bodies that riskgate holds is used up.
    TooManyHeld,
    /// The client waits for a 100 that riskgate can't send.
    ContinueNotSent,
    /// The client has left.
    Gone(Box<Error>),
}

impl HoldError {
    /// Returns the refusal that the client gets.
    ///
    /// # Errors
    /// Returns Pingora's error if the client has left.
    pub fn into_refusal(self) -> Result<Refusal, Box<Error>> {
        match self {
            HoldError::Fault(fault) => Ok(fault.refusal()),
            HoldError::TooManyHeld => Ok(NO_MEMORY_REFUSAL),
            HoldError::ContinueNotSent => Ok(Refusal::ExpectationFailed),
            HoldError::Gone(error) => Err(error),
        }
    }
}

/// Reads the next part of a body; `None` at its end.
async fn read_next_part(client: &mut ServerSession) -> Result<Option<Bytes>, HoldError> {
    client.read_request_body().await.map_err(|error| match BodyFault::find_in(&error) {
        Some(fault) => HoldError::Fault(fault),
        None => HoldError::Gone(error.into_down()),
    })
}

/// What riskgate knows of a body before it reads it.
#[derive(Clone, Copy, Debug)]
pub struct BodyOutlook {
    /// The `Content-Length` of the header; `None` if the header has none.
    pub announced_length: Option<usize>,
    /// The most bytes of a part that may end a longer body. riskgate must not read the end of a
    /// longer body here: Pingora would not forward the bytes. 0 if no longer body can end within
    /// its first [`MAX_HELD_BODY_BYTES`].
    pub max_last_part: usize,
}

impl BodyOutlook {
    /// Returns true if riskgate must stop after `read_bytes`: the body is longer than riskgate
    /// holds, or the next part may be the end of a longer body.
    fn must_stop_after(self, read_bytes: usize) -> bool {
        match self.announced_length {
            Some(length) if length > MAX_HELD_BODY_BYTES => {
                read_bytes >= MAX_HELD_BODY_BYTES || length - read_bytes <= self.max_last_part
            }
            Some(_) => false,
            None => read_bytes + self.max_last_part > MAX_HELD_BODY_BYTES,
        }
    }
}

/// Reads a body until it is complete, or until `outlook` says that riskgate must stop. So a slow
/// client with a short body keeps no server waiting, and holds no exchange permit. `first_part` was
/// read before. If riskgate has to wait, `held` counts the bytes of the body or `request_bytes`,
/// whichever are more.
pub async fn hold_body(
    client: &mut ServerSession,
    outlook: BodyOutlook,
    first_part: Bytes,
    (held, request_bytes): (&mut HeldBytesGuard, usize),
    options: &BodyOptions,
) -> Result<HeldBody, HoldError> {
    let mut body = Vec::from(first_part);
    let too_slow = |_| HoldError::Fault(BodyFault::TooSlow);
    let is_long = outlook.announced_length.is_some_and(|length| length > MAX_HELD_BODY_BYTES);
    // A client with a slow link may send a photo for minutes, so a body that is announced as long
    // has a time limit for each part only.
    let (whole_timeout, part_timeout) = match is_long {
        true => (Duration::MAX, options.timeout),
        false => (options.timeout, Duration::MAX),
    };
    let read = async {
        loop {
            if client.is_body_done() {
                return Ok(true);
            }
            if outlook.must_stop_after(body.len()) {
                return Ok(false);
            }
            let next = timeout(part_timeout, read_next_part(client));
            let part = held.count_during(next, body.len().max(request_bytes).max(1)).await;
            let part = part.ok_or(HoldError::TooManyHeld)?.map_err(too_slow)?;
            let Some(part) = part? else { return Ok(true) };
            if body.len() + part.len() > options.max_bytes {
                return Err(HoldError::Fault(BodyFault::TooLong));
            }
            body.extend_from_slice(&part);
        }
    };
    let is_whole = timeout(whole_timeout, read).await.map_err(too_slow).flatten()?;
    let body = Bytes::from(body);
    Ok(if is_whole { HeldBody::Whole(body) } else { HeldBody::Start(body) })
}

/// Returns the `Content-Length` of a request; `None` if the request has none.
pub fn announced_length(header: &RequestHeader) -> Option<usize> {
    parse_content_length(header.headers.get(CONTENT_LENGTH)?.as_bytes())
}

/// Returns true if a body follows the header of a request, or if the header has this length of a
/// body, which may be 0.
pub fn announces_body(announced_length: Option<usize>, client: &mut ServerSession) -> bool {
    announced_length.is_some() || !client.is_body_done()
}

/// Returns true if the client waits for a 100 that riskgate can't send. Over HTTP/2, Pingora can't
/// send a 100. Over HTTP/1.1, riskgate sends the 100 when Pingora reads the body.
pub fn awaits_impossible_continue(client: &mut ServerSession) -> bool {
    client.is_http2() && awaits_continue(client)
}

/// Removes `Expect` from the request header, so that the upstream server sends no second 100.
pub fn remove_expect(client: &mut ServerSession) {
    client.req_header_mut().remove_header(&EXPECT);
}

/// Waits for the start of a body whose client waits for a 100 that riskgate can't send. Returns the
/// first part of the body, which is empty if the body has ended.
pub async fn wait_for_body_start(
    client: &mut ServerSession,
    held: &mut HeldBytesGuard,
) -> Result<Bytes, HoldError> {
    let request_bytes = waiting_request_bytes(client.req_header(), PINGORA_TASK_BYTES);
    if !held.grow_to(request_bytes.max(1)) {
        return Err(HoldError::TooManyHeld);
    }
    match timeout(BODY_START_TIMEOUT, read_next_part(client)).await {
        Ok(read) => read.map(Option::unwrap_or_default),
        Err(_) => Err(HoldError::ContinueNotSent),
    }
}
