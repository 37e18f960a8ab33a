//! The client's connection as Pingora sees it during one request.
//!
//! A `RequestIo` yields the bytes of the request's body and no later bytes. If the body is chunked,
//! a `RequestIo` writes the data again in chunks that every parser reads alike. If the client waits
//! for 100 Continue, a `RequestIo` sends the 100 when Pingora first reads the body, unless bytes of
//! the body have arrived or Pingora has written a response. A `RequestIo` never closes the
//! connection: when it is dropped, the connection returns to its owner.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::client_close_watch::{CLIENT_LEFT_CHECK_INTERVAL, ClientCloseWatch};
use super::client_io::ClientIo;
use crate::message::chunks::{ChunkDecoder, ChunkSyntax, LAST_CHUNK, MalformedChunks, write_chunk};
use crate::message::request_head::RequestBodyFraming;
use crate::proxy::request_body::MAX_HELD_BODY_BYTES;

/// The response that a client may wait for before it sends a body (RFC 9110 section 10.1.1).
const CONTINUE_RESPONSE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How an interim response over HTTP/1.1 begins (RFC 9110 section 15.2).
const INTERIM_RESPONSE_START: &[u8] = b"HTTP/1.1 1";

/// A connection that was returned to its owner.
#[derive(Debug)]
pub struct ReturnedConnection {
    pub client_io: Box<ClientIo>,
    /// Whether a part of the request's body was not read.
    pub has_unread_body: bool,
    /// The time at which the last byte of the response was written.
    pub answered_at: Instant,
}

/// A client's connection while Pingora serves one request on it.
#[derive(Debug)]
pub struct RequestIo {
    /// The connection; `None` only after it was returned to its owner.
    client_io: Option<Box<ClientIo>>,
    unread_body: UnreadBody,
    /// Whether the client waits for a 100 before it sends its body.
    awaits_continue: bool,
    answered_at: Instant,
    /// Whether a part of the final response was written.
    has_response_begun: bool,
    /// Watches whether the client has left; `None` if nobody waits for that.
    close_watch: Option<ClientCloseWatch>,
    return_sender: Option<oneshot::Sender<ReturnedConnection>>,
}

/// The part of a request's body that Pingora has not read.
#[derive(Debug)]
enum UnreadBody {
    /// A body of `length` bytes, of which `left` are unread.
    Length { left: usize, length: usize },
    Chunks {
        decoder: ChunkDecoder,
        /// Chunks that riskgate has decoded and written again for Pingora.
        written: Vec<u8>,
        /// The position in `written` up to which Pingora has read.
        read_position: usize,
        /// Whether `written` has the last chunk. The last chunk is alone in `written`, so that no
        /// read with data ends the body.
        is_end_written: bool,
    },
}

impl From<RequestBodyFraming> for UnreadBody {
    fn from(framing: RequestBodyFraming) -> UnreadBody {
        match framing {
            RequestBodyFraming::Length(length) => UnreadBody::Length { left: length, length },
            RequestBodyFraming::Chunked => UnreadBody::Chunks {
                decoder: ChunkDecoder::new(ChunkSyntax::Strict),
                written: Vec::new(),
                read_position: 0,
                is_end_written: false,
            },
        }
    }
}

impl RequestIo {
    /// Wraps a connection for a request with this body. The receiver gets the connection when the
    /// `RequestIo` is dropped.
    pub fn new(
        client_io: Box<ClientIo>,
        body: RequestBodyFraming,
        awaits_continue: bool,
    ) -> (RequestIo, oneshot::Receiver<ReturnedConnection>) {
        let (return_sender, returned) = oneshot::channel();
        let request_io = RequestIo {
            client_io: Some(client_io),
            unread_body: body.into(),
            awaits_continue,
            answered_at: Instant::now(),
            has_response_begun: false,
            close_watch: None,
            return_sender: Some(return_sender),
        };
        (request_io, returned)
    }

    fn client_io(&mut self) -> std::io::Result<&mut ClientIo> {
        self.client_io.as_deref_mut().ok_or_else(|| std::io::ErrorKind::NotConnected.into())
    }

    fn pinned_client_io(&mut self) -> std::io::Result<Pin<&mut ClientIo>> {
        self.client_io().map(Pin::new)
    }
}

impl UnreadBody {
    fn is_all_read(&self) -> bool {
        match self {
            UnreadBody::Length { left, .. } => *left == 0,
            UnreadBody::Chunks { is_end_written, written, read_position, .. } => {
                *is_end_written && *read_position == written.len()
            }
        }
    }

    fn poll_read_from(
        &mut self,
        client_io: &mut ClientIo,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self {
            UnreadBody::Length { left, length } => {
                // The gateway first reads up to `MAX_HELD_BODY_BYTES`. This read must not contain
                // the end of a longer body.
                let left_to_hold =
                    MAX_HELD_BODY_BYTES.checked_sub(*length - *left).filter(|it| *it > 0);
                let most = left_to_hold.unwrap_or(*left).min(*left).min(buffer.remaining());
                let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
                ready!(Pin::new(client_io).poll_read(context, &mut part))?;
                let read = part.filled().len();
                buffer.advance(read);
                *left -= read;
                Poll::Ready(Ok(()))
            }
            UnreadBody::Chunks { decoder, written, read_position, is_end_written } => {
                while *read_position == written.len() {
                    written.clear();
                    *read_position = 0;
                    let decoded =
                        decoder.decode(&mut client_io.read_buf, |data| write_chunk(data, written));
                    decoded.map_err(|error: MalformedChunks| {
                        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
                    })?;
                    if !written.is_empty() {
                        break;
                    }
                    if decoder.is_complete() {
                        written.extend_from_slice(LAST_CHUNK);
                        *is_end_written = true;
                    } else {
                        // If riskgate can't send the bytes, the next write reports the error.
                        let _ = client_io.poll_send_buffered(context);
                        if !ready!(client_io.poll_read_more(context)) {
                            // The end of the connection.
                            return Poll::Ready(Ok(()));
                        }
                    }
                }
                let unread = &written[*read_position..];
                let length = unread.len().min(buffer.remaining());
                buffer.put_slice(&unread[..length]);
                *read_position += length;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl Drop for RequestIo {
    fn drop(&mut self) {
        if let (Some(client_io), Some(sender)) = (self.client_io.take(), self.return_sender.take())
        {
            // If the receiver is gone, the connection closes here.
            let _ = sender.send(ReturnedConnection {
                client_io,
                has_unread_body: match &self.unread_body {
                    UnreadBody::Length { left, .. } => *left > 0,
                    UnreadBody::Chunks { decoder, .. } => !decoder.is_complete(),
                },
                answered_at: self.answered_at,
            });
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
        let Some(client_io) = this.client_io.as_deref_mut() else {
            return Poll::Ready(Err(std::io::ErrorKind::NotConnected.into()));
        };
        if this.unread_body.is_all_read() {
            // The client may be waiting for the buffered bytes, so riskgate sends them first. No
            // further byte belongs to this request, so the read stays pending until the client has
            // left.
            let _ = client_io.poll_send_buffered(context);
            let new_watch = || ClientCloseWatch::with_first_check_after(CLIENT_LEFT_CHECK_INTERVAL);
            let watch = this.close_watch.get_or_insert_with(new_watch);
            let left = watch.poll_client_left(client_io, this.has_response_begun, context);
            // A read of no bytes would not end the exchange, so this read returns an error.
            return left.map(|()| Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        if std::mem::take(&mut this.awaits_continue) && client_io.read_buf.is_empty() {
            client_io.write_buf.extend_from_slice(CONTINUE_RESPONSE);
        }
        this.unread_body.poll_read_from(client_io, context, buffer)
    }
}

impl AsyncWrite for RequestIo {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        // Pingora may still read the body. Pingora has begun to write a final response, or a 100
        // itself, so no further 100 Continue may follow.
        this.awaits_continue = false;
        // Pingora writes a 100 in one piece.
        this.has_response_begun |= !bytes.starts_with(INTERIM_RESPONSE_START);
        // The watch begins again with each pause of the response.
        this.close_watch = None;
        let written = ready!(this.pinned_client_io()?.poll_write(context, bytes));
        this.answered_at = Instant::now();
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        // At the end of a session, Pingora discards the rest of the body and flushes once more. The
        // last flush must not change the time of the response.
        let has_sent_all_bytes = this.client_io()?.has_sent_all_bytes();
        let flushed = ready!(this.pinned_client_io()?.poll_flush(context));
        if !has_sent_all_bytes {
            this.answered_at = Instant::now();
        }
        Poll::Ready(flushed)
    }

    /// Flushes without closing. The owner closes the connection later, so that the response isn't
    /// lost.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}

#[async_trait]
impl Shutdown for RequestIo {
    async fn shutdown(&mut self) {
        // If the client has left, the flush fails, and riskgate has nothing left to do.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl UniqueID for RequestIo {
    fn id(&self) -> UniqueIDType {
        self.client_io.as_ref().map_or(-1, |client_io| client_io.id())
    }
}

impl Ssl for RequestIo {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.client_io.as_ref()?.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.client_io.as_ref()?.selected_alpn_proto()
    }
}

impl GetTimingDigest for RequestIo {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.client_io.as_ref().map(|client_io| client_io.get_timing_digest()).unwrap_or_default()
    }
}

impl GetProxyDigest for RequestIo {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.client_io.as_ref()?.get_proxy_digest()
    }
}

impl GetSocketDigest for RequestIo {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.client_io.as_ref()?.get_socket_digest()
    }
}

impl Peek for RequestIo {}

#[cfg(test)]
mod tests;
