//! The deadline of a whole exchange with an upstream server.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::support::socket_reset::duplicate;

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
