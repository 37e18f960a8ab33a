use super::*;
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;

#[test]
fn a_socket_is_released_once_under_the_lock() {
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket = Arc::new(GuardedSocket(Mutex::new(duplicate_fd(stream.as_raw_fd()))));
    let (send_started, started) = channel();
    let (send_release, release) = channel::<()>();
    let timer = Arc::clone(&socket);
    let timer = std::thread::spawn(move || {
        timer.release_once_with(|_| {
            send_started.send(()).unwrap();
            release.recv().unwrap();
        });
    });
    started.recv().unwrap();
    // The timer task holds the lock, so a drop of the guard waits until it is done.
    let (dropped, is_dropped) = channel();
    let dropper = Arc::clone(&socket);
    let dropper = std::thread::spawn(move || {
        dropper.release_once_with(drop);
        dropped.send(()).unwrap();
    });
    assert!(is_dropped.recv_timeout(Duration::from_millis(50)).is_err());
    send_release.send(()).unwrap();
    is_dropped.recv().unwrap();
    socket.release_once_with(|_| panic!("the socket was released before"));
    timer.join().unwrap();
    dropper.join().unwrap();
}
