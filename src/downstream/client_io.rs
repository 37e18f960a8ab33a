//! A connection of a client: what was read ahead of it, what is not sent yet, and who the client is,
//! where a proxy in front of us has said so.
//!
//! Pingora reads ahead to see whether a client left; what it reads then would be lost to us. So it
//! is given a [`RequestIo`], which shows it one request's body and after that a silent client.

mod inner;
mod request_io;

use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr as StdAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
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
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use inner::Inner;
pub use request_io::{RequestIo, Returned};

/// What is gathered of an answer before it is sent, in bytes: a header and a short body.
const GATHERED: usize = 1460;
/// Room for what arrives in one go, in bytes.
const AHEAD: usize = 4096;

/// How long a client may be silent behind its last answer before its connection is closed.
pub const LINGER: Duration = Duration::from_secs(2);
/// Bytes that a client may send on behind its last answer.
const MOST_DISCARDED: usize = 8 << 20;
/// Room for what is read to be dropped, in bytes.
const DISCARD: usize = 8 * 1024;
/// For how many streams of HTTP/2 bytes are forgiven that come behind their end.
const MOST_FORGIVEN: i64 = 64;
/// What may come on a stream behind its end: its window (RFC 9113 section 6.9.2) in small frames.
const WINDOW: i64 = 2 * 65_535;

/// A stream with what was read ahead of the request in hand.
#[derive(Debug)]
pub struct Wire {
    inner: Inner,
    /// Bytes that arrived and were not handed on.
    pub ahead: BytesMut,
    /// What was written and not sent yet.
    unsent: BytesMut,
    /// Counts what is read, where somebody wants to know.
    meter: Option<Arc<Meter>>,
    /// Nothing that was sent lies in the stream below.
    is_flushed: bool,
    /// The client that a proxy speaks for.
    client: Option<Arc<SocketDigest>>,
}

/// Counts bytes that are read.
#[derive(Debug)]
pub struct Meter {
    most: i64,
    /// Below zero while there are bytes that were forgiven and have not come.
    read: AtomicI64,
    exceeded: Notify,
}

impl Meter {
    fn add(&self, bytes: usize) {
        let bytes = bytes.cast_signed() as i64;
        if self.read.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most {
            self.exceeded.notify_one();
        }
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.read.fetch_min(0, Ordering::Relaxed);
    }

    /// Does not count what may be under way on a stream that has ended before its body has.
    pub fn forgive_window(&self) {
        let least = -MOST_FORGIVEN * WINDOW;
        let forgiven = |read: i64| Some((read.min(0) - WINDOW).max(least));
        // The closure always gives a value.
        let _ = self.read.fetch_update(Ordering::Relaxed, Ordering::Relaxed, forgiven);
    }

    /// Resolves once there was more than there may be.
    pub async fn exceeded(&self) {
        while self.read.load(Ordering::Relaxed) <= self.most {
            self.exceeded.notified().await;
        }
    }
}

impl Wire {
    /// A connection that was accepted from this peer; everything that arrives may be read.
    pub fn accepted(stream: TcpStream, peer: StdAddr) -> Wire {
        Wire::new(Inner::tcp(stream, peer))
    }

    /// The same over a stream of Pingora's.
    pub fn over(stream: Stream) -> Wire {
        Wire::new(Inner::Other(stream))
    }

    fn new(inner: Inner) -> Wire {
        let (ahead, unsent) = (BytesMut::new(), BytesMut::new());
        Wire { inner, ahead, unsent, meter: None, is_flushed: true, client: None }
    }

    /// Counts what is read from now on, and tells when it is more than this.
    pub fn metered(&mut self, most: i64) -> Arc<Meter> {
        let meter = Meter { most, read: AtomicI64::new(0), exceeded: Notify::new() };
        Arc::clone(self.meter.insert(Arc::new(meter)))
    }

    /// Reads more; `false` at the end, on an error, or when the deadline comes first.
    pub async fn read_more(&mut self, deadline: Instant) -> bool {
        timeout_at(deadline, poll_fn(|context| self.poll_more(context))).await.unwrap_or(false)
    }

    /// Reads more; `false` at the end or on an error. Who waits keeps no room for what may come.
    pub fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if ready!(self.inner.poll_arrival(context)).is_err() {
            return Poll::Ready(false);
        }
        self.ahead.reserve(AHEAD);
        match pin!(self.inner.read_buf(&mut self.ahead)).poll(context) {
            Poll::Ready(read) => Poll::Ready(matches!(read, Ok(1..))),
            Poll::Pending => {
                if self.ahead.is_empty() {
                    self.ahead = BytesMut::new();
                }
                Poll::Pending
            }
        }
    }

    /// Sends these bytes now, behind what was written before.
    pub async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        poll_fn(|context| self.poll_send(context)).await?;
        self.inner.write_all(bytes).await?;
        self.inner.flush().await
    }

    /// Whether nothing that was written is still to be sent.
    fn is_sent(&self) -> bool {
        self.unsent.is_empty() && self.is_flushed
    }

    /// Reads and drops what still comes, since unread bytes would turn our close into a reset that
    /// eats the answer: until the client closes, is silent for `LINGER`, or has sent
    /// `MOST_DISCARDED` bytes, and until `end` at the latest.
    pub async fn discard(&mut self, end: Instant) {
        self.ahead = BytesMut::new();
        let mut left = MOST_DISCARDED;
        while left > 0 {
            let silent = end.min(Instant::now() + LINGER);
            match timeout_at(silent, poll_fn(|context| self.poll_discard(context))).await {
                Ok(Ok(read @ 1..)) => left = left.saturating_sub(read),
                Ok(Ok(0) | Err(_)) | Err(_) => return,
            }
        }
    }

    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        let mut room = [MaybeUninit::uninit(); DISCARD];
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
    pub fn speaks_for(&mut self, client: Option<StdAddr>) {
        // No descriptor: what is asked of this digest was said by the proxy, or is not known.
        let told = SocketDigest::from_raw_fd(-1);
        let local = self.inner.socket_digest().and_then(|d| d.local_addr().cloned());
        // The cells are new, so that nobody has set them before.
        let _ = told.peer_addr.set(client.map(SocketAddr::Inet));
        let _ = told.local_addr.set(local);
        let _ = told.original_dst.set(None);
        self.client = Some(Arc::new(told));
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        // Who waits for the client sends first what there is for it. How that went shows when
        // more is written.
        let _ = this.poll_send(context);
        if this.ahead.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
            if let Some(meter) = &this.meter {
                meter.add(buffer.filled().len() - before);
            }
            return Poll::Ready(Ok(()));
        }
        let taken = buffer.remaining().min(this.ahead.len());
        buffer.put_slice(&this.ahead[..taken]);
        this.ahead.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl Wire {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(context, &self.unsent))?;
            if sent == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(sent);
            if self.unsent.is_empty() {
                // A connection that waits keeps no room.
                self.unsent = BytesMut::new();
                self.is_flushed = false;
            }
        }
        if !self.is_flushed {
            // TLS gathers on its own.
            ready!(Pin::new(&mut self.inner).poll_flush(context))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if self.unsent.len() + bytes.len() > GATHERED {
            ready!(self.poll_send(context))?;
        }
        if bytes.len() > GATHERED {
            self.is_flushed = false;
            return Pin::new(&mut self.inner).poll_write(context, bytes);
        }
        self.unsent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // An answer that is broken off goes as far as it was written.
        let _ = self.poll_send(&mut Context::from_waker(Waker::noop()));
    }
}

#[async_trait]
impl Shutdown for Wire {
    async fn shutdown(&mut self) {
        // Whoever is gone is told nothing.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for Wire {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for Wire {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.other()?.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.other()?.selected_alpn_proto()
    }
}

impl GetTimingDigest for Wire {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.other().map(|stream| stream.get_timing_digest()).unwrap_or_default()
    }
}

impl GetProxyDigest for Wire {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.other()?.get_proxy_digest()
    }
}

impl GetSocketDigest for Wire {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.client.clone().or_else(|| self.inner.socket_digest())
    }
}

impl Peek for Wire {}
