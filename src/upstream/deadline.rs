//! The deadline of a whole exchange, on its connection.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

/// Ends an exchange on its connection when the time is up.
///
/// Pingora's timers are for each read, so an upstream that trickles would never be late. This
/// holds a descriptor of its own for the connection and shuts the connection down at the
/// deadline; dropped before, it does nothing.
pub struct Deadline {
    timer: tokio::task::JoinHandle<()>,
}

impl Deadline {
    pub(super) fn watch(at: Instant, connection: RawFd) -> Option<Deadline> {
        let connection = duplicate(connection)?;
        let timer = tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            let stream = std::net::TcpStream::from(connection);
            // Already closed by the other side is as good.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
        Some(Deadline { timer })
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

/// A descriptor of our own, so that the number can't come to mean another connection.
#[allow(unsafe_code)]
fn duplicate(connection: RawFd) -> Option<OwnedFd> {
    // SAFETY: Pingora passes the descriptor of the connection that it holds open during the call
    // we are in; it is borrowed for the duplication only.
    let borrowed = unsafe { BorrowedFd::borrow_raw(connection) };
    borrowed.try_clone_to_owned().ok()
}
