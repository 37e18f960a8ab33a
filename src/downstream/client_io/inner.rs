//! The stream below a wire: the socket itself, or one of Pingora's that speaks TLS.

use std::io::Result;
use std::net::SocketAddr as StdAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::protocols::{SocketDigest, Stream, UniqueIDType};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[derive(Debug)]
pub enum Inner {
    Tcp(TcpStream, Arc<SocketDigest>),
    Other(Stream),
}

impl Inner {
    pub fn tcp(stream: TcpStream, peer: StdAddr) -> Inner {
        let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
        // The cell is new, so that nobody has set it before.
        let _ = digest.peer_addr.set(Some(SocketAddr::Inet(peer)));
        Inner::Tcp(stream, Arc::new(digest))
    }

    /// The stream that is no mere socket.
    pub fn other(&self) -> Option<&Stream> {
        match self {
            Inner::Tcp(..) => None,
            Inner::Other(stream) => Some(stream),
        }
    }

    pub fn id(&self) -> UniqueIDType {
        match self {
            Inner::Tcp(stream, _) => stream.as_raw_fd(),
            Inner::Other(stream) => stream.id(),
        }
    }

    pub fn socket_digest(&self) -> Option<Arc<SocketDigest>> {
        match self {
            Inner::Tcp(_, digest) => Some(Arc::clone(digest)),
            Inner::Other(stream) => stream.get_socket_digest(),
        }
    }

    /// Ready when there may be something to read. What TLS has decrypted already can't be asked
    /// for: whoever reads finds out.
    pub fn poll_arrival(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self {
            Inner::Tcp(stream, _) => stream.poll_read_ready(context),
            Inner::Other(_) => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncRead for Inner {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        match &mut *self {
            Inner::Tcp(stream, _) => Pin::new(stream).poll_read(context, buffer),
            Inner::Other(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Inner {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        match &mut *self {
            Inner::Tcp(stream, _) => Pin::new(stream).poll_write(context, bytes),
            Inner::Other(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut *self {
            Inner::Tcp(stream, _) => Pin::new(stream).poll_flush(context),
            Inner::Other(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut *self {
            Inner::Tcp(stream, _) => Pin::new(stream).poll_shutdown(context),
            Inner::Other(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
