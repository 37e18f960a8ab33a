//! The end of a connection after GOAWAY, so that the last responses arrive.
//!
//! A client of HTTP/2 confirms what it reads. If riskgate closed its socket while the kernel still
//! sends the last response, the kernel would answer the next frame of the client with a reset, and
//! drop the rest of the response.

use std::net::TcpStream as StdTcpStream;
use std::os::fd::RawFd;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::downstream::client_io::LINGER_TIMEOUT;
use crate::support::send_queue::count_unacknowledged_bytes;
use crate::support::socket_reset::duplicate_fd;

/// How often riskgate asks the kernel what the client has not acknowledged.
const ACKNOWLEDGEMENT_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The size of the buffer for frames that are discarded.
const FRAME_DISCARD_BUFFER_BYTES: usize = 4 * 1024;

/// GOAWAY, PING and the end of the stream have fewer bytes than this, with TLS as well.
const MAX_BYTES_WITHOUT_RESPONSE: usize = 128;

/// A connection that riskgate will close after GOAWAY.
pub(super) struct FinalClose(Option<TcpStream>);

impl FinalClose {
    /// Duplicates the descriptor of a connection, which stays open until [`FinalClose::finish`].
    pub fn begin(connection: RawFd) -> FinalClose {
        let socket = duplicate_fd(connection).map(StdTcpStream::from);
        FinalClose(socket.and_then(|socket| TcpStream::from_std(socket).ok()))
    }

    /// Shuts down the sending side. Then reads and discards what the client sends, until the client
    /// has acknowledged all bytes or has closed, at most for this time. If only frames like GOAWAY
    /// are not acknowledged, waits for [`LINGER_TIMEOUT`]. The caller has dropped the h2 crate's
    /// connection.
    pub async fn finish(self, time: Duration) {
        let Some(mut socket) = self.0 else { return };
        let end = Instant::now() + time;
        if socket.shutdown().await.is_err() {
            return;
        }
        let mut discarded = [0; FRAME_DISCARD_BUFFER_BYTES];
        let linger_end = end.min(Instant::now() + LINGER_TIMEOUT);
        loop {
            let end = match count_unacknowledged_bytes(&socket) {
                0 => return,
                1..=MAX_BYTES_WITHOUT_RESPONSE => linger_end,
                _ => end,
            };
            if Instant::now() >= end {
                return;
            }
            let next_check = end.min(Instant::now() + ACKNOWLEDGEMENT_CHECK_INTERVAL);
            match timeout_at(next_check, socket.read(&mut discarded)).await {
                Ok(Ok(1..)) | Err(_) => {}
                Ok(Ok(0) | Err(_)) => return,
            }
        }
    }
}
