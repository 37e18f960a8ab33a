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
