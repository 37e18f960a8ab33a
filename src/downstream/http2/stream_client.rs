//! An exchange whose client speaks HTTP/2.

use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::HttpSession;
use tokio::time::Instant;

use crate::downstream::exchange_client::ExchangeClient;
use crate::gate::RequestContext;
use crate::message::response::Reply;
use crate::proxy::upstream::Http2Header;

/// The client of an exchange on a stream of HTTP/2.
pub(super) struct Http2Client {
    /// The stream; always of HTTP/2.
    pub session: ServerSession,
    write_timeout: Duration,
    /// The header of the response until riskgate has sent it.
    header: Option<Box<ResponseHeader>>,
    output: Vec<u8>,
}

impl Http2Client {
    pub fn new(session: ServerSession, write_timeout: Duration) -> Http2Client {
        Http2Client { session, write_timeout, header: None, output: Vec::new() }
    }

    async fn send(&mut self, body: Bytes, is_end: bool) -> bool {
        let ServerSession::H2(stream) = &mut self.session else { return false };
        send_part(stream, self.header.take(), body, is_end).await
    }
}

/// Sends a part of the body of a response, and the header before the first part. Returns false if
/// the client has left or does not read.
pub(super) async fn send_part(
    stream: &mut HttpSession,
    header: Option<Box<ResponseHeader>>,
    body: Bytes,
    is_end: bool,
) -> bool {
    let is_end_in_header = header.is_some() && body.is_empty() && is_end;
    if let Some(header) = header
        && stream.write_response_header(header, is_end_in_header).is_err()
    {
        return false;
    }
    let is_all_sent = is_end_in_header || body.is_empty() && !is_end;
    is_all_sent || stream.write_body(body, is_end).await.is_ok()
}

impl ExchangeClient for Http2Client {
    type Header = Http2Header;

    fn begin_header(&mut self) -> Http2Header {
        Http2Header::default()
    }

    async fn wait_until_gone(&mut self, _with_timer: bool) {
        match self.session.watch_h2_stream_close() {
            Some(close) => drop(close.await),
            None => pending().await,
        }
    }

    fn set_response_header(&mut self, header: Http2Header, _should_close: bool) {
        self.header = header.finish();
    }

    fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    async fn send_output(&mut self, is_end: bool, latest_end: Option<Instant>) -> bool {
        let left = latest_end.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(self.write_timeout, |left| left.min(self.write_timeout));
        self.session.set_write_timeout(Some(timeout));
        let body = Bytes::from(std::mem::take(&mut self.output));
        self.send(body, is_end).await
    }

    async fn send_reply(
        &mut self,
        reply: &Reply,
        _should_close: bool,
        ctx: &mut RequestContext,
    ) -> bool {
        let (header, body) = ctx.header_and_body(reply);
        self.header = Some(header);
        self.session.set_write_timeout(Some(self.write_timeout));
        self.send(body, true).await
    }
}
