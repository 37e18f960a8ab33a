//! A reset in place of a close: a client must not take a cut response for a whole one.

use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpSocket;

/// Makes a reset of the end of this connection, once it comes: where the end says that an answer
/// is whole, one that was cut must not have it.
pub fn set_reset_on_close(connection: RawFd) {
    let Some(connection) = duplicate_fd(connection) else { return };
    let socket = TcpSocket::from_std_stream(TcpStream::from(connection));
    // One that is gone already ends no more.
    let _ = socket.set_zero_linger();
}

/// Whether [`set_reset_on_close`] was asked for this connection.
pub fn is_reset_on_close(connection: RawFd) -> bool {
    let connection = duplicate_fd(connection);
    connection.is_some_and(|c| matches!(SockRef::from(&c).linger(), Ok(Some(Duration::ZERO))))
}

/// A descriptor of our own, so that the number can't come to mean another connection.
#[allow(unsafe_code)]
pub fn duplicate_fd(connection: RawFd) -> Option<OwnedFd> {
    // SAFETY: it is the descriptor of a connection that our caller, or Pingora, holds open during
    // the call that we are in; it is borrowed for the duplication only.
    let borrowed = unsafe { BorrowedFd::borrow_raw(connection) };
    borrowed.try_clone_to_owned().ok()
}
