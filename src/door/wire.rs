//! A connection that gives away no more than one request.
//!
//! Pingora reads ahead to see whether a client left; what it reads then would be lost to us.
//! Behind this it sees the header and body of one request, and after that a silent client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream with what was read ahead of the request in hand.
#[derive(Debug)]
pub struct Wire {
    /// The connection itself.
    pub inner: Stream,
    /// Bytes that arrived and were not handed on.
    pub ahead: BytesMut,
    /// How many more bytes the request in hand may read: the rest of its body.
    pub allowance: usize,
}

impl Wire {
    pub fn new(inner: Stream) -> Wire {
        Wire { inner, ahead: BytesMut::with_capacity(2048), allowance: 0 }
    }

    /// The peer's address without its port, for the log.
    pub fn client_address(&self) -> String {
        let digest = self.inner.get_socket_digest();
        let address = digest.as_ref().and_then(|digest| digest.peer_addr());
        address.and_then(|a| a.as_inet()).map(|a| a.ip().to_string()).unwrap_or_default()
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
            let mut chunk = [0u8; 8192];
            let mut part = ReadBuf::new(&mut chunk);
            std::task::ready!(Pin::new(&mut this.inner).poll_read(context, &mut part))?;
            this.ahead.extend_from_slice(part.filled());
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
        self.inner.get_socket_digest()
    }
}

impl Peek for Wire {}
