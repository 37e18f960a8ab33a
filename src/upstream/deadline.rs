//! Ends of connections: the deadline of a whole exchange, and a reset in place of a close.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use tokio::net::TcpSocket;

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

/// Makes a reset of the end of this connection, once it comes: where the end says that an answer
/// is whole, one that was cut must not have it.
pub fn end_by_reset(connection: RawFd) {
    let Some(connection) = duplicate(connection) else { return };
    let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(connection));
    // One that is gone already ends no more.
    let _ = socket.set_zero_linger();
}

/// A descriptor of our own, so that the number can't come to mean another connection.
#[allow(unsafe_code)]
fn duplicate(connection: RawFd) -> Option<OwnedFd> {
    // SAFETY: it is the descriptor of a connection that Pingora holds open during the call that we
    // are in; it is borrowed for the duplication only.
    let borrowed = unsafe { BorrowedFd::borrow_raw(connection) };
    borrowed.try_clone_to_owned().ok()
}
