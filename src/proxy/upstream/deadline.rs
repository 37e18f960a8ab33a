//! The deadline of a whole exchange with an upstream server.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::support::socket_reset::duplicate_fd;

/// Shuts the upstream connection down at the deadline of an exchange.
///
/// Pingora's timers apply to each read, so an upstream server that trickles bytes would never time
/// out. The guard holds its own file descriptor of the connection. A dropped guard never shuts the
/// connection down, so drop it before another exchange can use the connection.
pub struct DeadlineGuard {
    timer: tokio::task::JoinHandle<()>,
    socket: Arc<GuardedSocket>,
}

/// The guard's own descriptor of the connection. `None` once the timer or the drop of the guard has
/// taken it.
struct GuardedSocket(Mutex<Option<OwnedFd>>);

impl DeadlineGuard {
    /// Starts the timer. Returns `None` if the connection's descriptor can't be duplicated; the
    /// exchange then has no guard.
    pub(super) fn start(deadline: Instant, connection: RawFd) -> Option<DeadlineGuard> {
        let socket = Arc::new(GuardedSocket(Mutex::new(Some(duplicate_fd(connection)?))));
        let timer_socket = Arc::clone(&socket);
        let timer = tokio::spawn(async move {
            tokio::time::sleep_until(deadline.into()).await;
            timer_socket.release_once_with(|connection| {
                // The shutdown fails only if the other side has closed the connection already.
                let _ = TcpStream::from(connection).shutdown(Shutdown::Both);
            });
        });
        Some(DeadlineGuard { timer, socket })
    }
}

impl GuardedSocket {
    /// Passes the descriptor to `release`, once: later calls do nothing. `release` runs under the
    /// lock, so that dropping the guard waits for a timer task that has just begun to shut the
    /// connection down.
    fn release_once_with(&self, release: impl FnOnce(OwnedFd)) {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = socket.take() {
            release(connection);
        }
    }
}

impl Drop for DeadlineGuard {
    fn drop(&mut self) {
        self.timer.abort();
        self.socket.release_once_with(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::channel;
    use std::time::Duration;

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
}
