//! A connection of a client: what was read ahead of it, what is not sent yet, and who the client is,
//! where a proxy in front of us has said so.
//!
//! Pingora reads ahead to see whether a client left; what it reads then would be lost to us. So it
//! is given a `RequestIo`, which shows it one request's body and after that a silent client.

mod inner;
mod read_meter;

use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr as StdAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection_tracker::ConnectionTracker;
use crate::support::socket_reset::is_reset_on_close;
use inner::InnerIo;
pub use read_meter::ReadMeter;

/// What is gathered of an answer before it is sent, in bytes: a header and a short body.
const WRITE_BUFFER_BYTES: usize = 1460;
/// Room for what arrives in one go, in bytes.
const READ_BUFFER_BYTES: usize = 4096;

/// How long a client may be silent behind its last answer before its connection is closed.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that a client may send on behind its last answer.
const MAX_DISCARDED_BYTES: usize = 8 << 20;
/// Room for what is read to be dropped, in bytes.
const DISCARD_BUFFER_BYTES: usize = 8 * 1024;
/// A stream with what was read ahead of the request in hand.
#[derive(Debug)]
pub struct ClientIo {
    inner: InnerIo,
    /// Bytes that arrived and were not handed on.
    pub read_buf: BytesMut,
    /// What was written and not sent yet.
    pub(super) write_buf: BytesMut,
    /// Counts what is read, where somebody wants to know.
    meter: Option<Arc<ReadMeter>>,
    /// Nothing that was sent lies in the stream below.
    is_inner_flushed: bool,
    /// The client that a proxy speaks for.
    proxied_digest: Option<Arc<SocketDigest>>,
}

impl ClientIo {
    /// A connection that was accepted from this peer; everything that arrives may be read.
    pub fn from_tcp(stream: TcpStream, peer: StdAddr) -> ClientIo {
        ClientIo::new(InnerIo::tcp(stream, peer))
    }

    /// The same over a stream of Pingora's.
    pub fn from_stream(stream: Stream) -> ClientIo {
        ClientIo::new(InnerIo::Pingora(stream))
    }

    fn new(inner: InnerIo) -> ClientIo {
        let (read_buf, write_buf) = (BytesMut::new(), BytesMut::new());
        ClientIo {
            inner,
            read_buf,
            write_buf,
            meter: None,
            is_inner_flushed: true,
            proxied_digest: None,
        }
    }

    /// Counts what is read from now on, and tells when it is more than this.
    pub fn start_meter(&mut self, most: i64) -> Arc<ReadMeter> {
        Arc::clone(self.meter.insert(Arc::new(ReadMeter::new(most))))
    }

    /// Reads more; `false` at the end, on an error, or when the deadline comes first.
    pub async fn read_more(&mut self, deadline: Instant) -> bool {
        timeout_at(deadline, poll_fn(|context| self.poll_read_more(context))).await.unwrap_or(false)
    }

    /// Reads more; `false` at the end or on an error. Who waits keeps no room for what may come.
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

    /// Sends these bytes now, behind what was written before.
    pub async fn write_and_flush(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        poll_fn(|context| self.poll_send_buffered(context)).await?;
        self.inner.write_all(bytes).await?;
        self.inner.flush().await
    }

    /// Whether these bytes could be sent in time, and until `end`. Mostly they go at once: only who
    /// waits needs a clock.
    pub async fn send_bytes(
        &mut self,
        bytes: &[u8],
        write_timeout: Duration,
        end: Option<Instant>,
    ) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let mut sending = pin!(self.write_and_flush(bytes));
        let sent = match poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await {
            Poll::Ready(sent) => Ok(sent),
            Poll::Pending => {
                let most = Instant::now() + write_timeout;
                timeout_at(end.map_or(most, |end| most.min(end)), sending).await
            }
        };
        matches!(sent, Ok(Ok(())))
    }

    /// Ends a connection so that its last answer arrives: no more is sent, and what the client
    /// still sends is read and dropped, until as long after the answer as a header may take.
    pub async fn close_connection(
        &mut self,
        answered: Instant,
        header_timeout: Duration,
        traffic: &ConnectionTracker,
    ) {
        // An answer that was cut must not look whole.
        if is_reset_on_close(self.id()) {
            return;
        }
        let end = answered + header_timeout;
        let closed = async {
            // TLS says first that no more comes, which a client that does not read holds up.
            if AsyncWriteExt::shutdown(self).await.is_ok() {
                self.discard_input(end).await;
            }
        };
        let drained = async {
            traffic.wait_for_drain().await;
            sleep(LINGER_TIMEOUT).await;
        };
        tokio::select! {
            _ = timeout_at(end, closed) => {}
            () = drained => {}
        }
    }

    /// Whether nothing that was written is still to be sent.
    pub(super) fn is_all_sent(&self) -> bool {
        self.write_buf.is_empty() && self.is_inner_flushed
    }

    /// Reads and drops what still comes, since unread bytes would turn our close into a reset that
    /// eats the answer: until the client closes, is silent for `LINGER_TIMEOUT`, or has sent
    /// `MAX_DISCARDED_BYTES` bytes, and until `end` at the latest.
    pub async fn discard_input(&mut self, end: Instant) {
        self.read_buf = BytesMut::new();
        let mut left = MAX_DISCARDED_BYTES;
        while left > 0 {
            let silent = end.min(Instant::now() + LINGER_TIMEOUT);
            match timeout_at(silent, poll_fn(|context| self.poll_discard(context))).await {
                Ok(Ok(read @ 1..)) => left = left.saturating_sub(read),
                Ok(Ok(0) | Err(_)) | Err(_) => return,
            }
        }
    }

    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        let mut room = [MaybeUninit::uninit(); DISCARD_BUFFER_BYTES];
        let mut buffer = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.inner).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// The peer's address, or that of the client whom it speaks for, if it said who that is.
    pub fn client_address(&self) -> Option<IpAddr> {
        let digest = self.get_socket_digest()?;
        digest.peer_addr().and_then(|address| address.as_inet()).map(StdAddr::ip)
    }

    /// From now on the peer speaks for this client, or for nobody who is known: that one has no
    /// address, so that nothing which it says of others is believed either.
    pub fn set_proxied_addr(&mut self, client: Option<StdAddr>) {
        // No descriptor: what is asked of this digest was said by the proxy, or is not known.
        let digest = SocketDigest::from_raw_fd(-1);
        let local = self.inner.socket_digest().and_then(|d| d.local_addr().cloned());
        // The cells are new, so that nobody has set them before.
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
        // Who waits for the client sends first what there is for it. How that went shows when
        // more is written.
        let _ = this.poll_send_buffered(context);
        if this.read_buf.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
            if let Some(meter) = &this.meter {
                meter.add_bytes(buffer.filled().len() - before);
            }
            return Poll::Ready(Ok(()));
        }
        let taken = buffer.remaining().min(this.read_buf.len());
        buffer.put_slice(&this.read_buf[..taken]);
        this.read_buf.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl ClientIo {
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
                // A connection that waits keeps no room.
                self.write_buf = BytesMut::new();
                self.is_inner_flushed = false;
            }
        }
        if !self.is_inner_flushed {
            // TLS gathers on its own.
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
        if self.write_buf.len() + bytes.len() > WRITE_BUFFER_BYTES {
            ready!(self.poll_send_buffered(context))?;
        }
        if bytes.len() > WRITE_BUFFER_BYTES {
            self.is_inner_flushed = false;
            return Pin::new(&mut self.inner).poll_write(context, bytes);
        }
        self.write_buf.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_send_buffered(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_send_buffered(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        // An answer that is broken off goes as far as it was written.
        let _ = self.poll_send_buffered(&mut Context::from_waker(Waker::noop()));
    }
}

#[async_trait]
impl Shutdown for ClientIo {
    async fn shutdown(&mut self) {
        // Whoever is gone is told nothing.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for ClientIo {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for ClientIo {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.pingora_stream()?.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.pingora_stream()?.selected_alpn_proto()
    }
}

impl GetTimingDigest for ClientIo {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.pingora_stream().map(|stream| stream.get_timing_digest()).unwrap_or_default()
    }
}

impl GetProxyDigest for ClientIo {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.pingora_stream()?.get_proxy_digest()
    }
}

impl GetSocketDigest for ClientIo {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.proxied_digest.clone().or_else(|| self.inner.socket_digest())
    }
}

impl Peek for ClientIo {}
