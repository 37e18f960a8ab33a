//! A client's connection: its read and write buffers, and the client's address from a PROXY header.
//!
//! Pingora reads ahead to notice that a client has left. The next request would lack the bytes that
//! Pingora has read. So riskgate gives Pingora a `RequestIo`, which yields the body of one request.
//! A further read stays pending until the client has left.

mod frame_meter;
mod inner;
mod send_progress;
mod stream_traits;

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr as StdAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::{GetSocketDigest, SocketDigest, Ssl, Stream, UniqueID};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection_tracker::ConnectionTracker;
use crate::gate::ConnectionFacts;
use crate::support::peer_close::{PeerClose, read_peer_close};
use crate::support::socket_reset::is_reset_on_close;
pub use frame_meter::{FrameMeter, OpenHeader};
use inner::InnerIo;
pub use send_progress::SendProgress;

/// The most bytes of a response that are buffered before they are sent. So a header and a short
/// body can leave in one TCP segment.
const WRITE_BUFFER_BYTES: usize = 1460;
/// The space reserved for one read, in bytes.
const READ_BUFFER_BYTES: usize = 4096;

/// How long riskgate waits for a client's next bytes after the last response of a connection. Then
/// it closes the connection.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes that riskgate reads and discards after the last response of a connection.
const MAX_DISCARDED_BYTES_AT_CLOSE: usize = 8 << 20;
/// The size of the buffer for bytes that are discarded.
const CLOSE_DISCARD_BUFFER_BYTES: usize = 8 * 1024;

/// A client's connection, with the bytes that were read ahead of the current request.
#[derive(Debug)]
pub struct ClientIo {
    inner: InnerIo,
    /// Bytes that arrived and were not consumed yet.
    pub read_buf: BytesMut,
    /// Bytes that were written and not sent yet.
    pub(super) write_buf: BytesMut,
    /// Limits the client's frames; `None` on HTTP/1.1.
    frame_meter: Option<Arc<FrameMeter>>,
    /// How far the written bytes are sent; `None` on HTTP/1.1.
    send_progress: Option<Arc<SendProgress>>,
    /// The bytes that riskgate has discarded after the end of an HTTP/2 connection.
    discarded_bytes: usize,
    /// Whether the inner stream has no unflushed bytes.
    is_inner_flushed: bool,
    /// The addresses by the PROXY header; `None` on a connection without a PROXY header.
    proxied_digest: Option<Arc<SocketDigest>>,
}

impl ClientIo {
    /// Wraps a TCP connection that was accepted from this peer.
    pub fn from_tcp(stream: TcpStream, peer: StdAddr) -> ClientIo {
        ClientIo::new(InnerIo::from_tcp(stream, peer))
    }

    /// Wraps a stream of Pingora's.
    pub fn from_pingora_stream(stream: Stream) -> ClientIo {
        ClientIo::new(InnerIo::Pingora(stream))
    }

    fn new(inner: InnerIo) -> ClientIo {
        let (read_buf, write_buf) = (BytesMut::new(), BytesMut::new());
        ClientIo {
            inner,
            read_buf,
            write_buf,
            frame_meter: None,
            send_progress: None,
            discarded_bytes: 0,
            is_inner_flushed: true,
            proxied_digest: None,
        }
    }

    /// Starts to count the frames that the client sends. Once the client exceeds the meter's limit,
    /// reads stay pending. So the connection's task must look at the meter after each read.
    pub fn start_frame_meter(&mut self) -> Arc<FrameMeter> {
        Arc::clone(self.frame_meter.insert(Arc::new(FrameMeter::new())))
    }

    /// Starts to note how far the written bytes are sent.
    pub fn start_send_progress(&mut self) -> Arc<SendProgress> {
        Arc::clone(self.send_progress.insert(Arc::default()))
    }

    /// Reads more bytes into `read_buf`. Returns false at the end of the connection, on an error,
    /// or at the deadline.
    pub async fn read_more(&mut self, deadline: Instant) -> bool {
        timeout_at(deadline, poll_fn(|context| self.poll_read_more(context))).await.unwrap_or(false)
    }

    /// Reads more bytes into `read_buf`. Returns false at the end of the connection or on an error.
    /// While a connection without buffered bytes waits, it has no memory for a read buffer.
    pub fn poll_read_more(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if ready!(self.inner.poll_readable(context)).is_err() {
            return Poll::Ready(false);
        }
        self.read_buf.reserve(READ_BUFFER_BYTES);
        match pin!(self.inner.read_buf(&mut self.read_buf)).poll(context) {
            Poll::Ready(read) => Poll::Ready(matches!(read, Ok(1..))),
            Poll::Pending => {
                if self.read_buf.is_empty() {
                    self.read_buf = BytesMut::new();
                }
                Poll::Pending
            }
        }
    }

    /// Sends these bytes now, after the bytes that were written before.
    pub async fn write_and_flush(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        poll_fn(|context| self.poll_send_buffered(context)).await?;
        self.inner.write_all(bytes).await?;
        self.inner.flush().await
    }

    /// Sends these bytes within `write_timeout` and before `latest_end`. Returns false if riskgate
    /// could not send all of them, or not in time. Most writes complete at once, so only a write
    /// that has to wait gets a timer.
    pub async fn send_bytes(
        &mut self,
        bytes: &[u8],
        write_timeout: Duration,
        latest_end: Option<Instant>,
    ) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let mut sending = pin!(self.write_and_flush(bytes));
        let sent = match poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await {
            Poll::Ready(sent) => Ok(sent),
            Poll::Pending => {
                let deadline = Instant::now() + write_timeout;
                timeout_at(latest_end.map_or(deadline, |end| deadline.min(end)), sending).await
            }
        };
        matches!(sent, Ok(Ok(())))
    }

    /// Closes a connection so that its last response arrives: riskgate shuts down its sending side,
    /// then reads and discards what the client still sends. It stops `header_timeout` after
    /// `answered_at` at the latest, and during a drain after `LINGER_TIMEOUT`. If the connection is
    /// marked for a reset, this function does nothing.
    pub async fn shut_down_and_linger(
        &mut self,
        answered_at: Instant,
        header_timeout: Duration,
        tracker: &ConnectionTracker,
    ) {
        // An HTTP/1.0 client must not take a truncated response for a complete one. When the socket
        // closes, the kernel sends a reset.
        if is_reset_on_close(self.id()) {
            return;
        }
        let end = answered_at + header_timeout;
        let closed = async {
            // TLS sends close_notify first. That blocks if the client doesn't read.
            if AsyncWriteExt::shutdown(self).await.is_ok() {
                self.discard_input(end).await;
            }
        };
        let drained = async {
            tracker.wait_until_drain_starts().await;
            sleep(LINGER_TIMEOUT).await;
        };
        tokio::select! {
            _ = timeout_at(end, closed) => {}
            () = drained => {}
        }
    }

    /// Returns what the client has closed.
    pub fn read_client_close(&self) -> PeerClose {
        read_peer_close(self.inner.id())
    }

    /// Returns true if all written bytes were sent.
    pub(super) fn has_sent_all_bytes(&self) -> bool {
        self.write_buf.is_empty() && self.is_inner_flushed
    }

    /// Reads and discards what the client still sends. If bytes were unread at the close, the
    /// kernel would send a reset, and the client could lose the response. Ends when the client has
    /// closed, was silent for `LINGER_TIMEOUT`, or has sent `MAX_DISCARDED_BYTES_AT_CLOSE`, and at
    /// `latest_end`.
    pub async fn discard_input(&mut self, latest_end: Instant) {
        self.read_buf = BytesMut::new();
        let mut left = MAX_DISCARDED_BYTES_AT_CLOSE;
        while left > 0 {
            let deadline = latest_end.min(Instant::now() + LINGER_TIMEOUT);
            match timeout_at(deadline, poll_fn(|context| self.poll_read_and_discard(context))).await
            {
                Ok(Ok(read @ 1..)) => left = left.saturating_sub(read),
                Ok(Ok(0) | Err(_)) | Err(_) => return,
            }
        }
    }

    /// After the end of an HTTP/2 connection whose client exceeded the limit of frames, discards
    /// what the client still sends, so that no reset destroys GOAWAY. Is ready once the client has
    /// closed, or has sent `MAX_DISCARDED_BYTES_AT_CLOSE`; the caller limits the time. On any other
    /// connection, this function is ready at once.
    fn poll_discard_flood(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if !self.frame_meter.as_ref().is_some_and(|meter| meter.is_exceeded()) {
            return Poll::Ready(Ok(()));
        }
        while self.discarded_bytes < MAX_DISCARDED_BYTES_AT_CLOSE {
            match ready!(self.poll_read_and_discard(context))? {
                0 => break,
                read => self.discarded_bytes += read,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads bytes and drops them. Returns how many.
    fn poll_read_and_discard(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); CLOSE_DISCARD_BUFFER_BYTES];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.inner).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Returns the address from which the connection comes: the client that the PROXY header names,
    /// or the peer of a connection without a PROXY header. `None` if the header names no client.
    pub fn peer_address(&self) -> Option<IpAddr> {
        let digest = self.get_socket_digest()?;
        digest.peer_addr().and_then(|address| address.as_inet()).map(StdAddr::ip)
    }

    /// Returns what riskgate knows of the connection.
    pub(crate) fn connection_facts(&self) -> ConnectionFacts {
        let tls = self.get_ssl_digest();
        ConnectionFacts::new(self.peer_address(), tls.as_deref().map(|tls| tls.version.as_ref()))
    }

    /// Sets the client's address from a PROXY header. `None` means that the header names no client
    /// (UNKNOWN, LOCAL). The connection then has no client address, so riskgate can't trust the
    /// `X-Forwarded-` fields of its requests.
    pub fn set_proxied_addr(&mut self, client: Option<StdAddr>) {
        // There is no descriptor: the digest has the client's address by the PROXY header, and the
        // local address of the connection.
        let digest = SocketDigest::from_raw_fd(-1);
        let local = self.inner.socket_digest().and_then(|d| d.local_addr().cloned());
        // The cells are new, so setting them can't fail.
        let _ = digest.peer_addr.set(client.map(SocketAddr::Inet));
        let _ = digest.local_addr.set(local);
        let _ = digest.original_dst.set(None);
        self.proxied_digest = Some(Arc::new(digest));
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        // Before riskgate waits for the client, it sends the buffered bytes. If riskgate can't send
        // them, the next write reports the error.
        let _ = this.poll_send_buffered(context);
        if this.frame_meter.as_ref().is_some_and(|meter| meter.is_exceeded()) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        if this.read_buf.is_empty() {
            ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        } else {
            let copied = buffer.remaining().min(this.read_buf.len());
            buffer.put_slice(&this.read_buf[..copied]);
            this.read_buf.advance(copied);
        }
        if let Some(meter) = &this.frame_meter {
            meter.count_frames_in(&buffer.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl ClientIo {
    /// Sends the bytes in `write_buf`, and flushes the inner stream.
    pub(super) fn poll_send_buffered(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        while !self.write_buf.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(context, &self.write_buf))?;
            if sent == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.write_buf.advance(sent);
            if self.write_buf.is_empty() {
                // A connection that waits needs no memory for a write buffer.
                self.write_buf = BytesMut::new();
                self.is_inner_flushed = false;
            }
        }
        if !self.is_inner_flushed {
            // The TLS stream has a buffer of its own.
            ready!(Pin::new(&mut self.inner).poll_flush(context))?;
            self.is_inner_flushed = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if let Some(progress) = &self.send_progress {
            progress.record_write(0);
        }
        if self.write_buf.len() + bytes.len() > WRITE_BUFFER_BYTES {
            ready!(self.poll_send_buffered(context))?;
        }
        let written = if bytes.len() > WRITE_BUFFER_BYTES {
            self.is_inner_flushed = false;
            ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?
        } else {
            self.write_buf.extend_from_slice(bytes);
            bytes.len()
        };
        if let Some(meter) = &self.frame_meter {
            meter.count_sent(written);
        }
        if let Some(progress) = &self.send_progress {
            progress.record_write(written);
        }
        Poll::Ready(Ok(written))
    }

    /// Writes all slices. Tokio's default would write only the first slice: before it gives up a
    /// handshake, TLS writes once, and the alert is in the last slice.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.as_mut().poll_write(context, slice) {
                Poll::Ready(Ok(length)) => {
                    written += length;
                    if length < slice.len() {
                        break;
                    }
                }
                // The earlier slices are written. The caller passes the rest again.
                _ if written > 0 => break,
                failed => return failed,
            }
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_send_buffered(context))?;
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        if let Some(progress) = &self.send_progress {
            progress.record_flush();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_send_buffered(context))?;
        ready!(Pin::new(&mut self.inner).poll_shutdown(context))?;
        self.poll_discard_flood(context)
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        // Sends the buffered part of a truncated response, as far as the socket accepts it at once.
        let _ = self.poll_send_buffered(&mut Context::from_waker(Waker::noop()));
    }
}
