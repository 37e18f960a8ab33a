//! Watches the connection of one exchange on the Pingora path: ends it at the deadline, and knows
//! whether a response has begun to arrive. Pingora does neither.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pingora::protocols::l4::ext::get_tcp_info;
use rustix::io::ioctl_fionread;
use tokio::sync::watch;

use super::deadline::ExchangeEndTime;
use crate::support::lock::lock;
use crate::support::socket_reset::duplicate_fd;

/// The most bytes that the kernel counts for the alert with which a TLS server closes. In TLS 1.2,
/// an alert has a header of 5 bytes, a nonce of 8, the alert of 2, and a tag of 16 (RFC 5288). The
/// end of the connection counts as one more byte. Every HTTP response is longer.
const MAX_BYTES_WITHOUT_RESPONSE_OVER_TLS: u64 = 32;

/// The states of a connection whose other side has ended it (RFC 9293), as the kernel numbers them:
/// CLOSED, which a reset leads to, and CLOSE-WAIT.
const ENDED_TCP_STATES: [u8; 2] = [7, 8];

/// The shortest pause between two checks whether a server takes what the client sends.
const MIN_STALL_CHECK_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two checks whether one side takes what the other side sends.
const MAX_STALL_CHECK_PAUSE: Duration = Duration::from_secs(1);

/// Watches the connection of one exchange. At the deadline, if there is one, it shuts the
/// connection down.
///
/// Pingora's timers apply to each read, so an upstream server that sends single bytes would never
/// time out. Pingora does not say whether a part of a response header had arrived before an error.
/// The guard has its own file descriptor of the connection. A dropped guard never shuts the
/// connection down. So the caller drops the guard before another exchange can use the connection.
pub struct ConnectionGuard {
    timer: tokio::task::JoinHandle<()>,
    end_time: watch::Sender<ExchangeEndTime>,
    socket: Arc<GuardedSocket>,
    /// What the connection had received when the exchange began.
    received_before: ReceivedTotals,
    is_tls: bool,
}

/// The guard's own descriptor of the connection. `None` once riskgate has shut the connection down,
/// or has dropped the guard.
pub struct GuardedSocket(Mutex<Option<OwnedFd>>);

impl ConnectionGuard {
    /// Starts the timer. Returns `None` if the connection's descriptor can't be duplicated, or if
    /// the kernel does not say what the connection has received. The exchange then has no guard.
    pub(super) fn start(
        end_time: ExchangeEndTime,
        connection: RawFd,
        is_tls: bool,
    ) -> Option<ConnectionGuard> {
        let connection = duplicate_fd(connection)?;
        let received_before = ReceivedTotals::read(&connection)?;
        let socket = Arc::new(GuardedSocket(Mutex::new(Some(connection))));
        let timer_socket = Arc::clone(&socket);
        let (end_time, current_end_time) = watch::channel(end_time);
        let timer = tokio::spawn(async move {
            wait_until_passed(current_end_time, &timer_socket).await;
            timer_socket.shut_down();
        });
        Some(ConnectionGuard { timer, end_time, socket, received_before, is_tls })
    }

    /// Returns true if the guard, or a slow upload, has shut the connection down.
    pub fn has_ended_exchange(&self) -> bool {
        lock(&self.socket.0).is_none()
    }

    /// The descriptor of the connection.
    pub fn socket(&self) -> &Arc<GuardedSocket> {
        &self.socket
    }

    /// Sets another end of the exchange.
    pub fn set_end_time(&self, end_time: ExchangeEndTime) {
        self.end_time.send_replace(end_time);
    }

    /// Returns true if a part of the response has arrived, or if riskgate can't tell.
    pub fn has_received_bytes(&self) -> bool {
        let socket = lock(&self.socket.0);
        let Some(received) = socket.as_ref().and_then(ReceivedTotals::read) else { return true };
        let before = self.received_before;
        match self.is_tls {
            true => received.bytes - before.bytes > MAX_BYTES_WITHOUT_RESPONSE_OVER_TLS,
            false => received.data_segments != before.data_segments,
        }
    }
}

/// Waits until the end of the exchange, even if the end is postponed meanwhile: the timer runs on
/// to the earlier end and only then starts again.
async fn wait_until_passed(mut current: watch::Receiver<ExchangeEndTime>, socket: &GuardedSocket) {
    // Since when the server has taken nothing more, and the bytes that it has acknowledged.
    let mut stalled: Option<(Instant, u64)> = None;
    loop {
        let end_time = *current.borrow_and_update();
        match end_time {
            ExchangeEndTime::At(Some(deadline)) if deadline <= Instant::now() => return,
            ExchangeEndTime::At(Some(deadline)) => tokio::time::sleep_until(deadline.into()).await,
            ExchangeEndTime::AtIfServerIsSilent(deadline) if deadline > Instant::now() => {
                tokio::time::sleep_until(deadline.into()).await;
            }
            ExchangeEndTime::AtIfServerIsSilent(_) if socket.has_unread_part() => {
                // The sender lives as long as the timer.
                let _ = tokio::time::timeout(MAX_STALL_CHECK_PAUSE, current.changed()).await;
            }
            ExchangeEndTime::AtIfServerIsSilent(_) => return,
            ExchangeEndTime::IfServerTakesNothingFor(Some(limit)) => {
                stalled = match (socket.acknowledged_bytes_if_more_due(), stalled) {
                    (None, _) => None,
                    (Some(now), Some((since, before))) if now == before => Some((since, before)),
                    (Some(now), _) => Some((Instant::now(), now)),
                };
                if stalled.is_some_and(|(since, _)| since.elapsed() >= limit) {
                    return;
                }
                let pause = (limit / 8).clamp(MIN_STALL_CHECK_PAUSE, MAX_STALL_CHECK_PAUSE);
                // The sender lives as long as the timer.
                let _ = tokio::time::timeout(pause, current.changed()).await;
            }
            ExchangeEndTime::At(None) | ExchangeEndTime::IfServerTakesNothingFor(None) => {
                drop(current.changed().await);
            }
        }
    }
}

/// What the kernel has received on a connection.
#[derive(Clone, Copy, Debug)]
struct ReceivedTotals {
    /// The bytes. The end of the connection counts as one more byte.
    bytes: u64,
    /// The segments with data.
    data_segments: u32,
}

impl ReceivedTotals {
    fn read(connection: &OwnedFd) -> Option<ReceivedTotals> {
        let info = get_tcp_info(connection.as_raw_fd()).ok()?;
        Some(ReceivedTotals {
            bytes: info.tcpi_bytes_received,
            data_segments: info.tcpi_data_segs_in,
        })
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
    /// or if the guard has released its descriptor.
    pub fn has_sent_everything(&self) -> bool {
        self.acknowledged_bytes_if_more_due().is_none()
    }

    /// Returns true if something of the server waits for the client: bytes that nobody has read, or
    /// the end of the connection. False if the guard has released its descriptor.
    fn has_unread_part(&self) -> bool {
        let socket = lock(&self.0);
        let has_closed = |it: &OwnedFd| {
            get_tcp_info(it.as_raw_fd())
                .is_ok_and(|info| ENDED_TCP_STATES.contains(&info.tcpi_state))
        };
        let has_bytes = |it: &OwnedFd| ioctl_fionread(it).is_ok_and(|bytes| bytes > 0);
        socket.as_ref().is_some_and(|it| has_bytes(it) || has_closed(it))
    }

    /// Returns how many bytes the kernel of the server has acknowledged. `None` if it has all bytes
    /// that were written to the connection, or if the guard has released its descriptor.
    fn acknowledged_bytes_if_more_due(&self) -> Option<u64> {
        let socket = lock(&self.0);
        let info = get_tcp_info(socket.as_ref()?.as_raw_fd()).ok()?;
        let is_more_due = info.tcpi_notsent_bytes > 0 || info.tcpi_unacked > 0;
        is_more_due.then_some(info.tcpi_bytes_acked)
    }

    /// Passes the descriptor to `release`. Later calls do nothing. `release` runs under the lock:
    /// if the timer task is shutting the connection down, the drop of the guard waits for the task.
    fn release_once_with(&self, release: impl FnOnce(OwnedFd)) {
        let mut socket = lock(&self.0);
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
mod tests;
