//! Lets the close of a connection be a TCP reset, so that the client does not take a truncated
//! response for a complete one.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::SockRef;

/// Makes the kernel reset this connection when riskgate closes it. An orderly close marks the end
/// of a response without a length, so a truncated response must not end with an orderly close.
pub fn set_reset_on_close(connection: RawFd) {
    with_borrowed_fd(connection, |connection| {
        // If the call fails, the connection is already closed.
        let _ = SockRef::from(&connection).set_linger(Some(Duration::ZERO));
    });
}

/// Whether the kernel resets this connection when riskgate closes it.
pub fn is_reset_on_close(connection: RawFd) -> bool {
    with_borrowed_fd(connection, |connection| {
        matches!(SockRef::from(&connection).linger(), Ok(Some(Duration::ZERO)))
    })
}

/// Duplicates the descriptor. The duplicate stays that of this connection, even if the connection
/// is closed meanwhile and another one gets the number of the original. `None` if the system
/// refuses.
pub fn duplicate_fd(connection: RawFd) -> Option<OwnedFd> {
    with_borrowed_fd(connection, |connection| connection.try_clone_to_owned().ok())
}

#[allow(unsafe_code)]
fn with_borrowed_fd<T>(connection: RawFd, operate: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    // SAFETY: the caller, or Pingora, holds the connection open during this call, and the
    // descriptor is borrowed only for the operation.
    operate(unsafe { BorrowedFd::borrow_raw(connection) })
}
