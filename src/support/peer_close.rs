//! Tells whether the other side of a connection has closed it.

use std::os::fd::RawFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::socket_reset::duplicate_fd;

/// Returns true if the other side has closed the connection, or only its sending side. Asks the
/// kernel, so bytes that arrived before do not hide the close.
pub fn has_peer_closed(connection: RawFd) -> bool {
    // Without a free descriptor, the next write tells.
    let Some(socket) = duplicate_fd(connection) else { return false };
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    poll(&mut polled, Some(&Timespec::default())).is_ok() && !polled[0].revents().is_empty()
}
