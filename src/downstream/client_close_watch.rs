//! Notices that a client of HTTP/1.1 has left, while the client waits for its response.
//!
//! riskgate asks the kernel from time to time whether the client has closed the connection. It does
//! not read from the connection, because bytes that arrive now belong to the next request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::client_io::ClientIo;
use crate::support::peer_close::PeerClose;

/// How often riskgate asks whether a client has left.
pub const CLIENT_LEFT_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How long riskgate waits for a response to begin once its client has closed its sending side.
/// Such a client may still wait for the response, or may have left.
const HALF_CLOSED_WAIT: Duration = Duration::from_secs(10);
/// How long riskgate waits for a response before it begins to watch whether the client has left.
pub const UNWATCHED_WAIT: Duration = Duration::from_secs(5);

/// A wait until the client of a request has left.
#[derive(Debug)]
pub struct ClientCloseWatch {
    next_check: Pin<Box<Sleep>>,
    /// When the client was first seen to have closed its sending side.
    half_closed_since: Option<Instant>,
}

impl ClientCloseWatch {
    /// Begins to watch, with the first check after `wait`.
    pub fn with_first_check_after(wait: Duration) -> ClientCloseWatch {
        ClientCloseWatch { next_check: Box::pin(sleep(wait)), half_closed_since: None }
    }

    /// Is ready once the client has left. If the client has closed its sending side, it counts as
    /// gone at once if its response has begun, and after [`HALF_CLOSED_WAIT`] if not.
    pub fn poll_client_left(
        &mut self,
        client_io: &ClientIo,
        has_response_begun: bool,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        while self.next_check.as_mut().poll(context).is_ready() {
            let has_left = match client_io.read_client_close() {
                PeerClose::Open => false,
                PeerClose::SendingSide => {
                    let since = *self.half_closed_since.get_or_insert_with(Instant::now);
                    has_response_begun || since.elapsed() >= HALF_CLOSED_WAIT
                }
                PeerClose::Reset => true,
            };
            if has_left {
                return Poll::Ready(());
            }
            self.next_check.as_mut().reset(Instant::now() + CLIENT_LEFT_CHECK_INTERVAL);
        }
        Poll::Pending
    }
}
