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

use super::connection_tracker::Traffic;
use crate::support::socket_reset::ends_by_reset;
use inner::Inner;
pub use read_meter::Meter;

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
/// A stream with what was read ahead of the request in hand.
#[derive(Debug)]
pub struct Wire {
    inner: Inner,
    /// Bytes that arrived and were not handed on.
    pub ahead: BytesMut,
    /// What was written and not sent yet.
    pub(super) unsent: BytesMut,
    /// Counts what is read, where somebody wants to know.
    meter: Option<Arc<Meter>>,
    /// Nothing that was sent lies in the stream below.
    is_flushed: bool,
    /// The client that a proxy speaks for.
    client: Option<Arc<SocketDigest>>,
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
        Arc::clone(self.meter.insert(Arc::new(Meter::new(most))))
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
        let mut sending = pin!(self.send(bytes));
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
        traffic: &Traffic,
    ) {
        // An answer that was cut must not look whole.
        if ends_by_reset(self.id()) {
            return;
        }
        let end = answered + header_timeout;
        let closed = async {
            // TLS says first that no more comes, which a client that does not read holds up.
            if AsyncWriteExt::shutdown(self).await.is_ok() {
                self.discard(end).await;
            }
        };
        let drained = async {
            traffic.drain_begun().await;
            sleep(LINGER).await;
        };
        tokio::select! {
            _ = timeout_at(end, closed) => {}
            () = drained => {}
        }
    }

    /// Whether nothing that was written is still to be sent.
    pub(super) fn is_sent(&self) -> bool {
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
    pub(super) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
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
