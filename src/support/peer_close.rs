//! Tells whether the other side of a connection has closed it.

use std::os::fd::RawFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::socket_reset::duplicate_fd;

/// What the other side of a connection has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerClose {
    /// Nothing.
    Open,
    /// Its sending side, and perhaps the whole connection: it sends nothing more.
    SendingSide,
    /// The connection: it was reset.
    Reset,
}

/// Returns what the other side has closed. Asks the kernel, so bytes that arrived before do not
/// hide the close.
pub fn read_peer_close(connection: RawFd) -> PeerClose {
    // Without a free descriptor, the next write tells.
    let Some(socket) = duplicate_fd(connection) else { return PeerClose::Open };
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    if poll(&mut polled, Some(&Timespec::default())).is_err() {
        return PeerClose::Open;
    }
    let found = polled[0].revents();
    match (found.intersects(PollFlags::HUP | PollFlags::ERR), found.is_empty()) {
        (true, _) => PeerClose::Reset,
        (false, false) => PeerClose::SendingSide,
        (false, true) => PeerClose::Open,
    }
}
