//! The client's connection as Pingora sees it for one request.
//!
//! It gives the request's body and nothing behind it, and asks for the body (100 Continue) when
//! Pingora first wants to read it. It never ends the connection: dropped, it hands it back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::client_io::Wire;

/// What a client may wait for before it sends a body (RFC 9110 section 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection that came back.
#[derive(Debug)]
pub struct Returned {
    pub wire: Box<Wire>,
    /// Bytes of the request's body that were not read.
    pub body_left: usize,
    /// When the last of the answer was written.
    pub answered: Instant,
}

/// The connection for as long as Pingora serves one request on it.
#[derive(Debug)]
pub struct RequestIo {
    /// None only once it was handed back.
    wire: Option<Box<Wire>>,
    body_left: usize,
    /// The client waits for a 100 before it sends its body.
    awaits_continue: bool,
    answered: Instant,
    owner: Option<oneshot::Sender<Returned>>,
}

impl RequestIo {
    /// The connection for a request with a body of so many bytes, and where it comes back.
    pub fn new(
        wire: Box<Wire>,
        body: usize,
        awaits_continue: bool,
    ) -> (RequestIo, oneshot::Receiver<Returned>) {
        let (owner, returned) = oneshot::channel();
        let (wire, owner, answered) = (Some(wire), Some(owner), Instant::now());
        (RequestIo { wire, body_left: body, awaits_continue, answered, owner }, returned)
    }

    fn wire(&mut self) -> std::io::Result<&mut Wire> {
        self.wire.as_deref_mut().ok_or_else(|| std::io::ErrorKind::NotConnected.into())
    }

    fn pinned(&mut self) -> std::io::Result<Pin<&mut Wire>> {
        self.wire().map(Pin::new)
    }
}

impl Drop for RequestIo {
    fn drop(&mut self) {
        if let (Some(wire), Some(owner)) = (self.wire.take(), self.owner.take()) {
            // If nobody waits for it any more, the connection ends here.
            let _ =
                owner.send(Returned { wire, body_left: self.body_left, answered: self.answered });
        }
    }
}

impl AsyncRead for RequestIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let (left, asks) = (this.body_left, this.awaits_continue);
        let wire = this.wire()?;
        if left == 0 {
            // What the client waits for is sent. Nothing more belongs to this request, and nothing
            // ever will, so nobody needs to be woken; if the client left, a write shows it.
            let _ = wire.poll_send(context);
            return Poll::Pending;
        }
        if asks && wire.ahead.is_empty() {
            wire.unsent.extend_from_slice(CONTINUE);
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(left.min(buffer.remaining())));
        let polled = Pin::new(wire).poll_read(context, &mut part);
        let read = part.filled().len();
        this.awaits_continue = false;
        ready!(polled)?;
        buffer.advance(read);
        this.body_left -= read;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RequestIo {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        // A final answer: the body may still be read, but is not asked for.
        this.awaits_continue = false;
        let written = ready!(this.pinned()?.poll_write(context, bytes));
        this.answered = Instant::now();
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        // The end of a session flushes once more, behind what it read and dropped.
        let is_sent = this.wire()?.is_sent();
        let flushed = ready!(this.pinned()?.poll_flush(context));
        if !is_sent {
            this.answered = Instant::now();
        }
        Poll::Ready(flushed)
    }

    /// Sends what was written. The owner ends the connection, once the answer can't be lost by it.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}

#[async_trait]
impl Shutdown for RequestIo {
    async fn shutdown(&mut self) {
        // Whoever is gone is told nothing.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for RequestIo {
    fn id(&self) -> UniqueIDType {
        self.wire.as_ref().map_or(-1, |wire| wire.id())
    }
}

impl Ssl for RequestIo {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.wire.as_ref()?.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.wire.as_ref()?.selected_alpn_proto()
    }
}

impl GetTimingDigest for RequestIo {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.wire.as_ref().map(|wire| wire.get_timing_digest()).unwrap_or_default()
    }
}

impl GetProxyDigest for RequestIo {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.wire.as_ref()?.get_proxy_digest()
    }
}

impl GetSocketDigest for RequestIo {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.wire.as_ref()?.get_socket_digest()
    }
}

impl Peek for RequestIo {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    async fn connected() -> (TcpStream, Box<Wire>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        (client, Box::new(Wire::accepted(stream, peer)))
    }

    #[tokio::test]
    async fn a_request_reads_its_body_and_leaves_what_follows_to_the_next() {
        let (mut client, wire) = connected().await;
        client.write_all(b"bodyGET /next").await.unwrap();
        let (mut io, mut returned) = RequestIo::new(wire, 4, false);
        let mut body = [0; 4];
        io.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"body");
        // A reader that waits on is not told of an end: the client may have half-closed.
        let mut context = Context::from_waker(Waker::noop());
        let mut more = [0; 4];
        let polled = Pin::new(&mut io).poll_read(&mut context, &mut ReadBuf::new(&mut more));
        assert!(polled.is_pending());
        drop(io);
        let Returned { mut wire, body_left, .. } = returned.try_recv().unwrap();
        assert_eq!(body_left, 0);
        wire.read_exact(&mut more).await.unwrap();
        assert_eq!(&more, b"GET ");
    }

    #[tokio::test]
    async fn a_read_without_room_is_over_at_once() {
        let mut context = Context::from_waker(Waker::noop());
        for body in [0, 4] {
            let (_client, wire) = connected().await;
            let (mut io, _returned) = RequestIo::new(wire, body, false);
            let polled = Pin::new(&mut io).poll_read(&mut context, &mut ReadBuf::new(&mut []));
            assert!(polled.is_ready(), "{body}");
        }
    }

    #[tokio::test]
    async fn a_body_is_asked_for_once_and_not_behind_an_answer() {
        for (answers_first, said) in [(false, CONTINUE), (true, b"HTTP/1.1 404 Not Found\r\n")] {
            let (mut client, wire) = connected().await;
            let (mut io, returned) = RequestIo::new(wire, 4, true);
            if answers_first {
                io.write_all(said).await.unwrap();
            }
            let reading = tokio::spawn(async move {
                let mut body = [0; 4];
                io.read_exact(&mut body).await.unwrap();
                body
            });
            let mut heard = vec![0; said.len()];
            client.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, said);
            client.write_all(b"body").await.unwrap();
            assert_eq!(&reading.await.unwrap(), b"body");
            drop(returned);
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "and nothing else");
        }
    }
}
