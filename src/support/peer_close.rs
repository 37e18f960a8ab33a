//! Tells whether the other side of a connection has closed it.

use std::os::fd::RawFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::socket_reset::duplicate_fd;

/// What the other side of a connection has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerClose {
    /// Nothing.
    Open,
    /// The sending side, and perhaps the whole connection. The other side sends nothing more.
    SendingSide,
    /// The connection: it was reset, or both sides have closed their sending sides.
    Reset,
}

/// Returns what the other side has closed. Asks the kernel, because bytes that arrived before the
/// close would hide it from a read.
pub fn read_peer_close(connection: RawFd) -> PeerClose {
    // Without a free descriptor, riskgate notices the close at its next write.
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
