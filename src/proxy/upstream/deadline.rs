//! The deadline of a whole exchange with an upstream server.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::support::socket_reset::duplicate_fd;

/// Ends an exchange on its connection when the time is up.
///
/// Pingora's timers are for each read, so an upstream that trickles would never be late. This
/// holds a descriptor of its own for the connection and shuts the connection down at the
/// deadline. Once it was dropped it does nothing more, so drop it before another exchange can take
/// place on the connection.
pub struct DeadlineGuard {
    timer: tokio::task::JoinHandle<()>,
    socket: Arc<GuardedSocket>,
}

/// The connection, for as long as it may be shut down.
struct GuardedSocket(Mutex<Option<OwnedFd>>);

impl DeadlineGuard {
    pub(super) fn start(at: Instant, connection: RawFd) -> Option<DeadlineGuard> {
        let held = Arc::new(GuardedSocket(Mutex::new(Some(duplicate_fd(connection)?))));
        let at_deadline = Arc::clone(&held);
        let timer = tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            at_deadline.release_with(|connection| {
                // Already closed by the other side is as good.
                let _ = TcpStream::from(connection).shutdown(Shutdown::Both);
            });
        });
        Some(DeadlineGuard { timer, socket: held })
    }
}

impl GuardedSocket {
    /// Ends it, once. Under its lock: an abort alone would let a timer that runs already shut the
    /// connection down after the drop that aborts it.
    fn release_with(&self, how: impl FnOnce(OwnedFd)) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = held.take() {
            how(connection);
        }
    }
}

impl Drop for DeadlineGuard {
    fn drop(&mut self) {
        self.timer.abort();
        self.socket.release_with(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_dropped_guard_shuts_nothing_down_even_after_its_deadline() {
        let (ours, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let held = Arc::new(GuardedSocket(Mutex::new(duplicate_fd(ours.as_raw_fd()))));
        let (began, begins) = channel();
        let (leave, left) = channel::<()>();
        let timer = Arc::clone(&held);
        let timer = std::thread::spawn(move || {
            timer.release_with(|_| {
                began.send(()).unwrap();
                left.recv().unwrap();
            });
        });
        begins.recv().unwrap();
        // The timer is at work: who drops it now waits until it is done.
        let (dropped, is_dropped) = channel();
        let dropper = Arc::clone(&held);
        let dropper = std::thread::spawn(move || {
            dropper.release_with(drop);
            dropped.send(()).unwrap();
        });
        assert!(is_dropped.recv_timeout(Duration::from_millis(50)).is_err());
        leave.send(()).unwrap();
        is_dropped.recv().unwrap();
        held.release_with(|_| panic!("it was ended before"));
        timer.join().unwrap();
        dropper.join().unwrap();
    }
}
