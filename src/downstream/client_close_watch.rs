//! Notices that a client of HTTP/1.1 has left, while its response is awaited or pauses.
//!
//! Nothing is read for that, because what arrives belongs to the next request. Instead, the kernel
//! is asked from time to time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::client_io::ClientIo;
use crate::support::peer_close::PeerClose;

/// How often riskgate asks whether a client has left.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How long a response may take to begin once its client has closed its sending side. Such a client
/// may still wait, or may be gone: only the first bytes of a response would tell.
const HALF_CLOSED_WAIT: Duration = Duration::from_secs(10);
/// How long riskgate waits for a response before it begins to watch whether the client has left.
pub const UNWATCHED_WAIT: Duration = Duration::from_secs(5);

/// A wait until the client of a request has left.
#[derive(Debug)]
pub struct ClientCloseWatch {
    next_check: Pin<Box<Sleep>>,
    /// When the client was first seen to have closed its sending side.
    closed_since: Option<Instant>,
}

impl ClientCloseWatch {
    /// Begins to watch, with the first check after `wait`.
    pub fn with_first_check_after(wait: Duration) -> ClientCloseWatch {
        ClientCloseWatch { next_check: Box::pin(sleep(wait)), closed_since: None }
    }

    /// Is ready once the client has left. A client whose response has begun has left as soon as it
    /// has closed its sending side.
    pub fn poll_left(
        &mut self,
        client_io: &ClientIo,
        has_response_begun: bool,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        while self.next_check.as_mut().poll(context).is_ready() {
            let has_left = match client_io.read_client_close() {
                PeerClose::Open => false,
                PeerClose::SendingSide => {
                    let since = *self.closed_since.get_or_insert_with(Instant::now);
                    has_response_begun || since.elapsed() >= HALF_CLOSED_WAIT
                }
                PeerClose::Reset => true,
            };
            if has_left {
                return Poll::Ready(());
            }
            self.next_check.as_mut().reset(Instant::now() + CHECK_INTERVAL);
        }
        Poll::Pending
    }
}
