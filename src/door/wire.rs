//! A connection that gives away no more than it is allowed to.
//!
//! Pingora reads ahead to see whether a client left; what it reads then would be lost to us.
//! Behind this it sees the header and body of one request, and after that a silent client. It
//! also knows who the client is, where a proxy in front of us has said so.

use std::net::{IpAddr, SocketAddr as StdAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

/// A stream with what was read ahead of the request in hand.
#[derive(Debug)]
pub struct Wire {
    /// The connection itself.
    pub inner: Stream,
    /// Bytes that arrived and were not handed on.
    pub ahead: BytesMut,
    /// How many more bytes may be read: the rest of a request's body, or all.
    pub allowance: usize,
    /// The client that a proxy speaks for.
    client: Option<Arc<SocketDigest>>,
}

impl Wire {
    pub fn new(inner: Stream) -> Wire {
        Wire { inner, ahead: BytesMut::with_capacity(2048), allowance: 0, client: None }
    }

    /// Everything that arrives, for who reads the whole connection.
    pub fn unbounded(mut self) -> Wire {
        self.allowance = usize::MAX;
        self
    }

    /// Reads more; `false` at the end, on an error, or when the deadline comes first.
    pub async fn read_more(&mut self, deadline: Instant) -> bool {
        matches!(timeout_at(deadline, self.inner.read_buf(&mut self.ahead)).await, Ok(Ok(1..)))
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
        let local = self.inner.get_socket_digest().and_then(|d| d.local_addr().cloned());
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
        let wanted = this.allowance.min(buffer.remaining());
        if wanted == 0 {
            // Nothing more belongs to this request; whether the client left shows when we write.
            return Poll::Pending;
        }
        if this.ahead.is_empty() {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(wanted));
            std::task::ready!(Pin::new(&mut this.inner).poll_read(context, &mut part))?;
            let read = part.filled().len();
            buffer.advance(read);
            this.allowance -= read;
            return Poll::Ready(Ok(()));
        }
        let taken = wanted.min(this.ahead.len());
        buffer.put_slice(&this.ahead[..taken]);
        this.ahead.advance(taken);
        this.allowance -= taken;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[async_trait]
impl Shutdown for Wire {
    async fn shutdown(&mut self) {
        Shutdown::shutdown(&mut *self.inner).await;
    }
}

impl UniqueID for Wire {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for Wire {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for Wire {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for Wire {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for Wire {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.client.clone().or_else(|| self.inner.get_socket_digest())
    }
}

impl Peek for Wire {}
