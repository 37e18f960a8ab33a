//! The connection of one exchange on the Pingora path, beside Pingora: its deadline, and whether a
//! response has begun to arrive.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pingora::protocols::l4::ext::get_tcp_info;
use tokio::sync::watch;

use crate::support::socket_reset::duplicate_fd;

/// The most bytes that the kernel counts if a TLS server closes without a response: its alert has
/// in TLS 1.2 a header of 5 bytes, a nonce of 8, the alert of 2, and a tag of 16 (RFC 5288). The
/// end of the connection counts as one byte more. Every HTTP response is longer.
const MAX_TLS_CLOSE_BYTES: u64 = 32;

/// Watches the connection of one exchange. At the deadline, if there is one, it shuts the
/// connection down.
///
/// Pingora's timers apply to each read, so an upstream server that trickles bytes would never time
/// out. And Pingora does not say whether a part of a response header had arrived before an error.
/// The guard holds its own file descriptor of the connection. A dropped guard never shuts the
/// connection down, so drop it before another exchange can use the connection.
pub struct ConnectionGuard {
    timer: tokio::task::JoinHandle<()>,
    deadline: watch::Sender<Option<Instant>>,
    socket: Arc<GuardedSocket>,
    /// What the connection had received when the exchange began.
    received_before: Received,
    is_tls: bool,
}

/// The guard's own descriptor of the connection. `None` once the timer or the drop of the guard has
/// taken it.
pub struct GuardedSocket(Mutex<Option<OwnedFd>>);

impl ConnectionGuard {
    /// Starts the timer. Returns `None` if the connection's descriptor can't be duplicated; the
    /// exchange then has no guard.
    pub(super) fn start(
        deadline: Option<Instant>,
        connection: RawFd,
        is_tls: bool,
    ) -> Option<ConnectionGuard> {
        let connection = duplicate_fd(connection)?;
        let received_before = Received::on(&connection)?;
        let socket = Arc::new(GuardedSocket(Mutex::new(Some(connection))));
        let timer_socket = Arc::clone(&socket);
        let (deadline, current_deadline) = watch::channel(deadline);
        let timer = tokio::spawn(async move {
            wait_until_passed(current_deadline).await;
            timer_socket.shut_down();
        });
        Some(ConnectionGuard { timer, deadline, socket, received_before, is_tls })
    }

    /// The descriptor of the connection.
    pub fn socket(&self) -> &Arc<GuardedSocket> {
        &self.socket
    }

    /// Sets another deadline.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        self.deadline.send_replace(deadline);
    }

    /// Returns true if a part of the response has arrived, or if the deadline has passed.
    pub fn has_received_bytes(&self) -> bool {
        let socket = self.socket.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(received) = socket.as_ref().and_then(Received::on) else { return true };
        let before = self.received_before;
        match self.is_tls {
            true => received.bytes - before.bytes > MAX_TLS_CLOSE_BYTES,
            false => received.data_segments != before.data_segments,
        }
    }
}

/// Waits until the deadline has passed, however often it changes meanwhile. The timer runs on if
/// the deadline is postponed, so a postponement costs nothing until then.
async fn wait_until_passed(mut current: watch::Receiver<Option<Instant>>) {
    loop {
        let deadline = *current.borrow_and_update();
        match deadline {
            Some(deadline) if deadline <= Instant::now() => return,
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            // The sender lives as long as the timer.
            None => drop(current.changed().await),
        }
    }
}

/// What the kernel has received on a connection.
#[derive(Clone, Copy, Debug)]
struct Received {
    /// The bytes. The end of the connection counts as one more.
    bytes: u64,
    /// The segments with data.
    data_segments: u32,
}

impl Received {
    fn on(connection: &OwnedFd) -> Option<Received> {
        let info = get_tcp_info(connection.as_raw_fd()).ok()?;
        Some(Received { bytes: info.tcpi_bytes_received, data_segments: info.tcpi_data_segs_in })
    }
}

impl GuardedSocket {
    /// Shuts the connection down, unless the guard is gone.
    pub fn shut_down(&self) {
        self.release_once_with(|connection| {
            // The shutdown fails only if the other side has closed the connection already.
            let _ = TcpStream::from(connection).shutdown(Shutdown::Both);
        });
    }

    /// Returns true if the kernel of the server has all bytes that were written to the connection,
    /// or if the guard is gone.
    pub fn has_sent_everything(&self) -> bool {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let info = socket.as_ref().and_then(|socket| get_tcp_info(socket.as_raw_fd()).ok());
        info.is_none_or(|info| info.tcpi_notsent_bytes == 0 && info.tcpi_unacked == 0)
    }

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

impl Drop for ConnectionGuard {
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
