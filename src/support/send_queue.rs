//! Tells how much of what was sent on a connection the other side has not acknowledged.

use std::os::fd::AsFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// The request SIOCOUTQ (tcp(7)).
const SIOCOUTQ: Opcode = 0x5411;

/// Returns the bytes in the kernel that the other side of a TCP connection has not acknowledged.
/// The end of the stream counts as one byte. After a reset, the bytes still count. 0 if the kernel
/// does not tell.
#[allow(unsafe_code)]
pub fn count_unacknowledged_bytes(connection: impl AsFd) -> usize {
    // SAFETY: SIOCOUTQ writes one `int`, and reads nothing.
    let request = unsafe { Getter::<SIOCOUTQ, i32>::new() };
    // SAFETY: as above; the descriptor is borrowed during the call.
    let bytes = unsafe { ioctl(connection, request) };
    bytes.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests;
