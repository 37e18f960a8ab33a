//! Ends of connections: the deadline of a whole exchange, and a reset in place of a close.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::TcpSocket;

/// Ends an exchange on its connection when the time is up.
///
/// Pingora's timers are for each read, so an upstream that trickles would never be late. This
/// holds a descriptor of its own for the connection and shuts the connection down at the
/// deadline. Once it was dropped it does nothing more, so drop it before another exchange can take
/// place on the connection.
pub struct Deadline {
    timer: tokio::task::JoinHandle<()>,
    held: Arc<Held>,
}

/// The connection, for as long as it may be shut down.
struct Held(Mutex<Option<OwnedFd>>);

impl Deadline {
    pub(super) fn watch(at: Instant, connection: RawFd) -> Option<Deadline> {
        let held = Arc::new(Held(Mutex::new(Some(duplicate(connection)?))));
        let at_deadline = Arc::clone(&held);
        let timer = tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            at_deadline.end(|connection| {
                // Already closed by the other side is as good.
                let _ = TcpStream::from(connection).shutdown(Shutdown::Both);
            });
        });
        Some(Deadline { timer, held })
    }
}

impl Held {
    /// Ends it, once. Under its lock: an abort alone would let a timer that runs already shut the
    /// connection down after the drop that aborts it.
    fn end(&self, how: impl FnOnce(OwnedFd)) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = held.take() {
            how(connection);
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.timer.abort();
        self.held.end(drop);
    }
}

/// Makes a reset of the end of this connection, once it comes: where the end says that an answer
/// is whole, one that was cut must not have it.
pub fn end_by_reset(connection: RawFd) {
    let Some(connection) = duplicate(connection) else { return };
    let socket = TcpSocket::from_std_stream(TcpStream::from(connection));
    // One that is gone already ends no more.
    let _ = socket.set_zero_linger();
}

/// Whether [`end_by_reset`] was asked for this connection.
pub fn ends_by_reset(connection: RawFd) -> bool {
    let connection = duplicate(connection);
    connection.is_some_and(|c| matches!(SockRef::from(&c).linger(), Ok(Some(Duration::ZERO))))
}

/// A descriptor of our own, so that the number can't come to mean another connection.
#[allow(unsafe_code)]
fn duplicate(connection: RawFd) -> Option<OwnedFd> {
    // SAFETY: it is the descriptor of a connection that our caller, or Pingora, holds open during
    // the call that we are in; it is borrowed for the duplication only.
    let borrowed = unsafe { BorrowedFd::borrow_raw(connection) };
    borrowed.try_clone_to_owned().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn once_it_was_dropped_it_ends_nothing_even_if_its_time_has_come() {
        let (ours, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let held = Arc::new(Held(Mutex::new(duplicate(ours.as_raw_fd()))));
        let (began, begins) = channel();
        let (leave, left) = channel::<()>();
        let timer = Arc::clone(&held);
        let timer = std::thread::spawn(move || {
            timer.end(|_| {
                began.send(()).unwrap();
                left.recv().unwrap();
            });
        });
        begins.recv().unwrap();
        // The timer is at work: who drops it now waits until it is done.
        let (dropped, is_dropped) = channel();
        let dropper = Arc::clone(&held);
        let dropper = std::thread::spawn(move || {
            dropper.end(drop);
            dropped.send(()).unwrap();
        });
        assert!(is_dropped.recv_timeout(Duration::from_millis(50)).is_err());
        leave.send(()).unwrap();
        is_dropped.recv().unwrap();
        held.end(|_| panic!("it was ended before"));
        timer.join().unwrap();
        dropper.join().unwrap();
    }
}
