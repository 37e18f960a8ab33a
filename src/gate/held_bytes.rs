//! The limits of request bodies, and the memory for bodies of requests and responses that riskgate
//! holds: of all clients together, and of each client.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::Version;
use pingora::http::RequestHeader;

use crate::model::network::Networks;
use crate::model::refusal::Refusal;
use crate::support::per_client_limit::{PerClientGuard, PerClientLimit};

/// The limits of request bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyOptions {
    /// The most bytes of a body.
    pub max_bytes: usize,
    /// The time in which a short body for a server must arrive, and each part of a longer body.
    pub timeout: Duration,
    /// The most bytes that riskgate holds at the same time: see [`HeldBytes`].
    pub max_held_bytes: usize,
}

/// The memory of the task and the stream of a request over HTTP/2 on the fast path, in bytes.
pub const FAST_PATH_TASK_BYTES: usize = 12 * 1024;
/// The memory of the task and the stream of a request over HTTP/2 that Pingora's proxy serves, in
/// bytes.
pub const PINGORA_TASK_BYTES: usize = 36 * 1024;
/// The memory of a header field without its name and value, in bytes.
pub const HEADER_FIELD_BYTES: usize = 128;

/// One client may use the memory divided by this number.
const CLIENT_SHARE_DIVISOR: usize = 16;

/// The refusal of a body that riskgate has no memory to hold: no server is to blame.
pub const NO_MEMORY_REFUSAL: Refusal = Refusal::Internal;

/// Counts the bytes that riskgate holds while it waits for clients, against
/// `listen.max_held_bytes`: bodies that arrive, responses that clients have not taken, and over
/// HTTP/2 the memory of requests that wait and of incomplete headers.
pub struct HeldBytes {
    max_bytes: usize,
    used_bytes: AtomicUsize,
    per_client: Arc<PerClientLimit>,
}

/// The bytes that riskgate holds for one request, or for a connection beside its requests. The drop
/// of the guard releases them.
pub struct HeldBytesGuard {
    held_bytes: Arc<HeldBytes>,
    /// `None` for a client without an address, which has no limit of its own.
    of_client: Option<PerClientGuard>,
    bytes: usize,
}

impl HeldBytes {
    /// Allows `max_bytes` for all clients together, and a sixteenth of `max_bytes` for each client.
    /// Clients in `exempt` have no limit of their own.
    pub fn new(max_bytes: usize, exempt: Networks) -> HeldBytes {
        let max_per_client = max_bytes.div_ceil(CLIENT_SHARE_DIVISOR);
        let per_client = Arc::new(PerClientLimit::new(max_per_client, exempt));
        HeldBytes { max_bytes, used_bytes: AtomicUsize::new(0), per_client }
    }

    /// Returns the bytes that all guards count now.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns a guard for this client. The guard counts no bytes yet.
    pub fn make_guard(self: &Arc<Self>, client_address: Option<IpAddr>) -> HeldBytesGuard {
        let of_client = client_address.map(|address| self.per_client.guard_without_units(address));
        HeldBytesGuard { held_bytes: Arc::clone(self), of_client, bytes: 0 }
    }
}

impl HeldBytesGuard {
    /// Raises the bytes that the guard counts to `bytes`. Returns false if that exceeds the limit
    /// of all clients or the limit of this client: then the caller must not hold these bytes.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return true;
        };
        // The client comes first: what exceeds its limit must not count against other clients, not
        // even for a moment.
        if self.of_client.as_mut().is_some_and(|client| !client.try_add(more)) {
            return false;
        }
        let (used, max) = (&self.held_bytes.used_bytes, self.held_bytes.max_bytes);
        let add = |used: usize| used.checked_add(more).filter(|sum| *sum <= max);
        let is_allowed = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        match (is_allowed, &mut self.of_client) {
            (true, _) => self.bytes += more,
            (false, Some(client)) => client.release(more),
            (false, None) => {}
        }
        is_allowed
    }

    /// Lowers the bytes that the guard counts to `bytes`, if it counts more.
    pub fn shrink_to(&mut self, bytes: usize) {
        let fewer = self.bytes.saturating_sub(bytes);
        if fewer > 0 {
            self.bytes -= fewer;
            self.held_bytes.used_bytes.fetch_sub(fewer, Ordering::Relaxed);
            if let Some(client) = &mut self.of_client {
                client.release(fewer);
            }
        }
    }

    /// Waits for `wait`, which reads from a client. If `wait` is not ready at once, counts at least
    /// `bytes` during the wait and after it. Returns `None` if riskgate may not hold these bytes.
    pub async fn count_during<T>(
        &mut self,
        wait: impl Future<Output = T>,
        bytes: usize,
    ) -> Option<T> {
        let mut wait = pin!(wait);
        match poll_fn(|task| Poll::Ready(wait.as_mut().poll(task))).await {
            Poll::Ready(done) => Some(done),
            Poll::Pending if !self.grow_to(bytes) => None,
            Poll::Pending => Some(wait.await),
        }
    }
}

/// Returns the bytes that a request over HTTP/2 takes while it waits for its body, without the
/// body: one connection has many requests, and a long head costs the client few bytes (RFC 7541).
/// Returns 0 over HTTP/1.1, where the limits of connections bound these bytes. `task_bytes` is the
/// memory of the task and the stream.
pub fn waiting_request_bytes(header: &RequestHeader, task_bytes: usize) -> usize {
    if header.version != Version::HTTP_2 {
        return 0;
    }
    let fields = header.headers.iter();
    let head_bytes: usize =
        fields.map(|(name, value)| name.as_str().len() + value.len() + HEADER_FIELD_BYTES).sum();
    task_bytes + head_bytes
}

impl Drop for HeldBytesGuard {
    fn drop(&mut self) {
        self.held_bytes.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
