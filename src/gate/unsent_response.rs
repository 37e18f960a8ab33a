//! What is unsent of the responses over HTTP/2: the bytes that riskgate has passed to the h2 crate,
//! and that wait there because the client reads slowly or not at all.
//!
//! The h2 crate tells nobody when it sends a byte. But it drops a `Bytes` once it has sent all of
//! its bytes, or with the stream. So each tracked part owns a reference to its [`UnsentResponse`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::http::ServerSession;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::held_bytes::HeldBytesGuard;
use crate::message::response::X_REQUEST_ID;

/// The memory that a header takes in the h2 crate, in bytes: about that of a response of riskgate.
const H2_HEADER_BYTES: usize = 2048;
/// The memory of a response on the fast path that waits for the client, without its body, in bytes:
/// its header, its stream, and the task that waits until the client takes the body.
pub const FAST_PATH_RESPONSE_BYTES: usize = 10 * 1024;
/// The memory of a request's body that riskgate has not read when it replies, in bytes. While the
/// reply waits for the client, nobody reads the body, and the client may send a window of it.
const UNREAD_BODY_BYTES: usize = 64 * 1024;
/// Each time riskgate's own unsent responses of a connection pass a multiple of this many bytes,
/// the task of the connection has to count them. The h2 crate wakes this task for no response while
/// the kernel takes no bytes.
const MANY_REPLY_BYTES: usize = 128 * 1024;
/// The most unsent bytes of a connection that don't count against `listen.max_held_bytes`. They are
/// about one response of riskgate, and the limit of connections bounds them.
const MAX_UNCOUNTED_BYTES: usize = 12 * 1024;

/// Counts the unsent bytes of all responses on one connection.
#[derive(Debug, Default)]
pub struct UnsentBytes {
    total: AtomicUsize,
    of_replies: AtomicUsize,
    many_replies: Notify,
    begun_parts: AtomicUsize,
    sent_parts: AtomicUsize,
    /// The requests whose clients have left, and that still wait for the answer of a server.
    without_client: AtomicUsize,
}

/// One response over HTTP/2, until its request has ended and the h2 crate has sent its bytes.
pub struct UnsentResponse<G: ?Sized = dyn Send + Sync> {
    of_connection: Arc<UnsentBytes>,
    bytes: AtomicUsize,
    all_sent: Notify,
    held: OnceLock<HeldBytesGuard>,
    has_client_left: AtomicBool,
    /// What is dropped with the response.
    _guards: G,
}

/// What a part of a response's body belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponsePart {
    /// The header and the whole body of a response of riskgate. No permit limits the number of such
    /// responses, so the connection counts them.
    Reply,
    /// The header and the whole body of a response of riskgate to a request whose body was not read
    /// to its end.
    ReplyBeforeBody,
    /// The header and the first part of the body of a server's response.
    ForwardedStart {
        /// The memory of the response without its body, in bytes.
        response_bytes: usize,
    },
    /// A later part of the body of a server's response.
    ForwardedRest,
    /// The header of a server's response without a body. Nothing waits until it is sent, so the
    /// connection counts it like a reply.
    ForwardedHeaderAlone,
}

/// A part of a response, until the h2 crate has sent it.
struct UnsentPart {
    bytes: Bytes,
    counted_bytes: usize,
    part: ResponsePart,
    response: Arc<UnsentResponse>,
}

impl ResponsePart {
    /// Returns the part for a whole response of riskgate.
    pub fn of_reply(is_request_body_done: bool) -> ResponsePart {
        match is_request_body_done {
            true => ResponsePart::Reply,
            false => ResponsePart::ReplyBeforeBody,
        }
    }

    /// The bytes that the part takes beside those of the body.
    fn bytes_beside_body(self) -> usize {
        match self {
            ResponsePart::Reply => FAST_PATH_RESPONSE_BYTES,
            ResponsePart::ReplyBeforeBody => FAST_PATH_RESPONSE_BYTES + UNREAD_BODY_BYTES,
            ResponsePart::ForwardedStart { response_bytes } => response_bytes,
            ResponsePart::ForwardedHeaderAlone => H2_HEADER_BYTES,
            ResponsePart::ForwardedRest => 0,
        }
    }

    /// Whether the connection counts the part with riskgate's own responses.
    fn counts_as_reply(self) -> bool {
        !matches!(self, ResponsePart::ForwardedStart { .. } | ResponsePart::ForwardedRest)
    }

    /// Whether [`UnsentResponse::wait_until_sent`] waits for the part.
    fn is_waited_for(self) -> bool {
        self != ResponsePart::ForwardedHeaderAlone
    }
}

impl UnsentBytes {
    /// Returns the unsent bytes of all responses.
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Waits until many more of riskgate's own responses are unsent.
    pub async fn wait_for_many_replies(&self) {
        self.many_replies.notified().await;
    }

    /// Returns how many parts were passed to the h2 crate so far.
    pub fn begun_parts(&self) -> usize {
        self.begun_parts.load(Ordering::Relaxed)
    }

    /// Returns how many parts were sent so far, or dropped with their streams.
    pub fn sent_parts(&self) -> usize {
        self.sent_parts.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that wait for the answer of a server without their client.
    /// Their exchanges have permits.
    pub fn count_without_client(&self) -> usize {
        self.without_client.load(Ordering::Relaxed)
    }

    /// Returns the unsent bytes of responses that no permit limits; 0 if they are so few that they
    /// need not count.
    pub fn reply_bytes_to_count(&self) -> usize {
        let bytes = self.of_replies.load(Ordering::Relaxed);
        if bytes <= MAX_UNCOUNTED_BYTES { 0 } else { bytes }
    }
}

impl UnsentResponse {
    /// Begins the response to a request on a connection with these unsent bytes. Drops the guards
    /// once the caller has dropped its reference and the response is sent or its stream was reset.
    pub fn begin<G>(of_connection: &Arc<UnsentBytes>, guards: G) -> Arc<UnsentResponse>
    where
        G: Send + Sync + 'static,
    {
        Arc::new(UnsentResponse {
            of_connection: Arc::clone(of_connection),
            bytes: AtomicUsize::new(0),
            all_sent: Notify::new(),
            held: OnceLock::new(),
            has_client_left: AtomicBool::new(false),
            _guards: guards,
        })
    }

    /// Records that the client has left, although its request still waits for a server.
    pub fn go_on_without_client(&self) {
        if !self.has_client_left.swap(true, Ordering::Relaxed) {
            self.of_connection.without_client.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets the Pingora path find the response of a request by the request's header.
    pub fn attach_to(self: &Arc<Self>, header: &mut RequestHeader) {
        header.extensions_mut().insert(Arc::clone(self));
    }

    /// Returns the response that [`UnsentResponse::attach_to`] attached; `None` if there is none:
    /// over HTTP/1.1, and in a mounted gateway.
    pub fn of_request(header: &RequestHeader) -> Option<&Arc<UnsentResponse>> {
        header.extensions.get()
    }

    /// Returns this part of the body, so that it counts as unsent until the h2 crate drops it.
    pub fn track(self: &Arc<Self>, bytes: Bytes, part: ResponsePart) -> Bytes {
        let counted_bytes = part.bytes_beside_body() + bytes.len();
        if part.is_waited_for() {
            self.bytes.fetch_add(counted_bytes, Ordering::Relaxed);
        }
        self.of_connection.total.fetch_add(counted_bytes, Ordering::Relaxed);
        self.of_connection.begun_parts.fetch_add(1, Ordering::Relaxed);
        if part.counts_as_reply() {
            let before = self.of_connection.of_replies.fetch_add(counted_bytes, Ordering::Relaxed);
            if before / MANY_REPLY_BYTES < (before + counted_bytes) / MANY_REPLY_BYTES {
                self.of_connection.many_replies.notify_one();
            }
        }
        let response = Arc::clone(self);
        Bytes::from_owner(UnsentPart { bytes, counted_bytes, part, response })
    }

    /// Counts the header of a server's response without a body as unsent, until the h2 crate and
    /// Pingora have dropped its `X-Request-Id`. Pingora drops the field with the request.
    pub fn track_header_alone(self: &Arc<Self>, header: &mut ResponseHeader) {
        let Some(id) = header.headers.get(X_REQUEST_ID) else { return };
        let id = Bytes::copy_from_slice(id.as_bytes());
        let id = self.track(id, ResponsePart::ForwardedHeaderAlone);
        let Ok(mut id) = HeaderValue::from_maybe_shared(id) else { return };
        // The h2 crate keeps other values in its compression table.
        id.set_sensitive(true);
        // A header that has the field can hold it.
        let _ = header.insert_header(X_REQUEST_ID, id);
    }

    /// Returns the unsent bytes of this response; 0 if the connection has so few unsent bytes that
    /// they need not count.
    pub fn bytes_to_count(&self) -> usize {
        let is_counted = self.of_connection.total() > MAX_UNCOUNTED_BYTES;
        if is_counted { self.bytes.load(Ordering::Relaxed) } else { 0 }
    }

    /// Waits until all parts so far are sent, at most until `latest_end`. If meanwhile the client
    /// takes no part on this connection for `patience`, or at `latest_end`, resets the stream, and
    /// returns false. The h2 crate sends the parts of a connection in turn, so one response may
    /// wait long although the client reads.
    pub async fn wait_until_sent(
        &self,
        session: &mut ServerSession,
        patience: Duration,
        latest_end: Option<Instant>,
    ) -> bool {
        let sent_parts = || self.of_connection.sent_parts();
        let is_sent = loop {
            let sent_before = sent_parts();
            let next_check = Instant::now() + patience;
            let next_check = latest_end.map_or(next_check, |end| end.min(next_check));
            if timeout_at(next_check, self.wait_until_parts_are_dropped()).await.is_ok() {
                break true;
            }
            if sent_parts() == sent_before || latest_end.is_some_and(|end| end <= next_check) {
                break false;
            }
        };
        if !is_sent
            && let ServerSession::H2(stream) = session
            && let Some(mut writer) = stream.take_response_body_writer()
        {
            // Pingora resets no stream whose end is queued.
            writer.send_reset(h2::Reason::CANCEL);
        }
        is_sent
    }

    /// Returns true if all parts so far are sent, or dropped with their stream. A header without a
    /// body is not a part in this sense.
    pub fn is_all_sent(&self) -> bool {
        self.bytes.load(Ordering::Acquire) == 0
    }

    async fn wait_until_parts_are_dropped(&self) {
        loop {
            let mut notified = std::pin::pin!(self.all_sent.notified());
            notified.as_mut().enable();
            if self.is_all_sent() {
                return;
            }
            notified.await;
        }
    }

    /// Keeps the guard that counts the unsent bytes until they are sent.
    pub fn keep_until_sent(&self, held: HeldBytesGuard) {
        // A response ends once, so it keeps one guard.
        let _ = self.held.set(held);
    }
}

impl AsRef<[u8]> for UnsentPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<G: ?Sized> Drop for UnsentResponse<G> {
    fn drop(&mut self) {
        if *self.has_client_left.get_mut() {
            self.of_connection.without_client.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for UnsentPart {
    fn drop(&mut self) {
        let (response, counted_bytes) = (&self.response, self.counted_bytes);
        response.of_connection.total.fetch_sub(counted_bytes, Ordering::Relaxed);
        response.of_connection.sent_parts.fetch_add(1, Ordering::Relaxed);
        if self.part.counts_as_reply() {
            response.of_connection.of_replies.fetch_sub(counted_bytes, Ordering::Relaxed);
        }
        if self.part.is_waited_for()
            && response.bytes.fetch_sub(counted_bytes, Ordering::AcqRel) == counted_bytes
        {
            response.all_sent.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
