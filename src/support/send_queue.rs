//! Tells how much of what was sent on a connection the other side has not acknowledged.

use std::os::fd::AsFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// The request SIOCOUTQ (tcp(7)).
const SIOCOUTQ: Opcode = 0x5411;

/// Returns the bytes in the kernel that the other side of a TCP connection has not acknowledged.
/// The end of the stream counts as one byte. 0 if the connection has ended.
#[allow(unsafe_code)]
pub fn count_unacknowledged_bytes(connection: impl AsFd) -> usize {
    // SAFETY: SIOCOUTQ writes one `int`, and reads nothing.
    let request = unsafe { Getter::<SIOCOUTQ, i32>::new() };
    // SAFETY: as above; the descriptor is borrowed during the call.
    let bytes = unsafe { ioctl(connection, request) };
    bytes.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_the_other_side_has_not_received_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        // Fills the buffers of both sides.
        let mut sent = 0;
        while let Ok(written) = sender.write(&[0; 65_536]) {
            sent += written;
        }
        let waiting = count_unacknowledged_bytes(&sender);
        assert!(waiting > 0 && waiting < sent, "{waiting} of {sent}");
        receiver.read_exact(&mut vec![0; sent]).unwrap();
        while count_unacknowledged_bytes(&sender) > 0 {
            std::thread::yield_now();
        }
    }
}
