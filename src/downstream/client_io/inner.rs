//! The stream inside a `ClientIo`: a TCP socket, or a stream of Pingora's that speaks TLS.

use std::io::Result;
use std::net::SocketAddr as StdAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::{SocketDigest, Stream, UniqueIDType};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The stream that a `ClientIo` reads from and writes to.
#[derive(Debug)]
pub enum InnerIo {
    /// A TCP socket, with the addresses of its two ends.
    Tcp(TcpStream, Arc<SocketDigest>),
    /// A stream of Pingora's, which speaks TLS.
    Pingora(Stream),
}

impl InnerIo {
    pub fn from_tcp(stream: TcpStream, peer: StdAddr) -> InnerIo {
        let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
        // The cell is new, so setting it can't fail.
        let _ = digest.peer_addr.set(Some(SocketAddr::Inet(peer)));
        InnerIo::Tcp(stream, Arc::new(digest))
    }

    /// Returns Pingora's stream; `None` for a TCP socket.
    pub fn pingora_stream(&self) -> Option<&Stream> {
        match self {
            InnerIo::Tcp(..) => None,
            InnerIo::Pingora(stream) => Some(stream),
        }
    }

    pub fn id(&self) -> UniqueIDType {
        match self {
            InnerIo::Tcp(stream, _) => stream.as_raw_fd(),
            InnerIo::Pingora(stream) => stream.id(),
        }
    }

    pub fn socket_digest(&self) -> Option<Arc<SocketDigest>> {
        match self {
            InnerIo::Tcp(_, digest) => Some(Arc::clone(digest)),
            InnerIo::Pingora(stream) => stream.get_socket_digest(),
        }
    }

    /// Is ready if bytes may have arrived, or if the connection has ended. A TLS stream can't tell
    /// whether it has decrypted bytes, so a TLS stream is always ready.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            InnerIo::Tcp(stream, _) => stream.poll_read_ready(context),
            InnerIo::Pingora(_) => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncRead for InnerIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        match &mut *self {
            InnerIo::Tcp(stream, _) => Pin::new(stream).poll_read(context, buffer),
            InnerIo::Pingora(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for InnerIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        match &mut *self {
            InnerIo::Tcp(stream, _) => Pin::new(stream).poll_write(context, bytes),
            InnerIo::Pingora(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut *self {
            InnerIo::Tcp(stream, _) => Pin::new(stream).poll_flush(context),
            InnerIo::Pingora(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut *self {
            InnerIo::Tcp(stream, _) => Pin::new(stream).poll_shutdown(context),
            InnerIo::Pingora(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
