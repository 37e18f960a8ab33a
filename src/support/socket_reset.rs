//! Lets the close of a connection be a TCP reset, so that the client does not take a truncated
//! response for a complete one.

use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpSocket;

/// Makes the kernel reset this connection when riskgate closes it. An orderly close marks the end
/// of a response without a length, so a truncated response must not end with an orderly close. Does
/// nothing if the system refuses a duplicate of the descriptor.
pub fn set_reset_on_close(connection: RawFd) {
    let Some(connection) = duplicate_fd(connection) else { return };
    let socket = TcpSocket::from_std_stream(TcpStream::from(connection));
    // If the call fails, the connection is already closed.
    let _ = socket.set_zero_linger();
}

/// Whether the kernel resets this connection when riskgate closes it.
pub fn is_reset_on_close(connection: RawFd) -> bool {
    let connection = duplicate_fd(connection);
    connection.is_some_and(|c| matches!(SockRef::from(&c).linger(), Ok(Some(Duration::ZERO))))
}

/// Duplicates the descriptor. The duplicate stays that of this connection, even if the connection
/// is closed meanwhile and another one gets the number of the original. `None` if the system
/// refuses.
#[allow(unsafe_code)]
pub fn duplicate_fd(connection: RawFd) -> Option<OwnedFd> {
    // SAFETY: the caller, or Pingora, holds the connection open during this call, and the
    // descriptor is borrowed only for the duplication.
    let borrowed = unsafe { BorrowedFd::borrow_raw(connection) };
    borrowed.try_clone_to_owned().ok()
}
