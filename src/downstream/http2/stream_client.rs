//! An exchange whose client speaks HTTP/2.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::HttpSession;
use tokio::time::Instant;

use crate::downstream::exchange_client::ExchangeClient;
use crate::gate::{
    FAST_PATH_RESPONSE_BYTES, HeldBytesGuard, RequestContext, ResponsePart, UnsentResponse,
};
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
    response: Arc<UnsentResponse>,
    /// Whether a part counts that has the header.
    is_header_counted: bool,
}

impl Http2Client {
    pub fn new(
        session: ServerSession,
        write_timeout: Duration,
        response: Arc<UnsentResponse>,
    ) -> Http2Client {
        Http2Client {
            session,
            write_timeout,
            header: None,
            output: Vec::new(),
            response,
            is_header_counted: false,
        }
    }

    /// Sends a part of the body of a response, and the header before the first part. Returns false
    /// if the client has left or does not read.
    async fn send(&mut self, body: Bytes, part: ResponsePart, is_end: bool) -> bool {
        let ServerSession::H2(stream) = &mut self.session else { return false };
        if let Some(header) = self.header.take()
            && stream.write_response_header(header, false).is_err()
        {
            return false;
        }
        if body.is_empty() && !is_end {
            return true;
        }
        self.is_header_counted = true;
        stream.write_body(self.response.track(body, part), is_end).await.is_ok()
    }

    /// Returns the time within which the client must take what is sent now.
    fn time_left(&self, latest_end: Option<Instant>) -> Duration {
        let left = latest_end.map(|end| end.saturating_duration_since(Instant::now()));
        left.map_or(self.write_timeout, |left| left.min(self.write_timeout))
    }
}

/// Sends a whole response of riskgate. Returns false if the client has left or does not read. A
/// response without a body ends with an empty DATA frame, so that riskgate knows when it is sent.
pub(super) async fn send_whole(
    stream: &mut HttpSession,
    (header, body): (Box<ResponseHeader>, Bytes),
    response: &Arc<UnsentResponse>,
) -> bool {
    let body = response.track(body, ResponsePart::of_reply(stream.is_body_done()));
    stream.write_response_header(header, false).is_ok()
        && stream.write_body(body, true).await.is_ok()
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

    fn go_on_without_client(&self) {
        self.response.go_on_without_client();
    }

    fn set_response_header(&mut self, header: Http2Header, _should_close: bool) {
        self.header = header.finish();
    }

    fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    async fn send_output(&mut self, is_end: bool, latest_end: Option<Instant>) -> bool {
        self.session.set_write_timeout(Some(self.time_left(latest_end)));
        let body = Bytes::from(std::mem::take(&mut self.output));
        // The header may go out before the first part of the body arrives.
        let part = match self.is_header_counted {
            false => ResponsePart::ForwardedStart { response_bytes: FAST_PATH_RESPONSE_BYTES },
            true => ResponsePart::ForwardedRest,
        };
        self.send(body, part, is_end).await
    }

    fn unsent_bytes(&self) -> usize {
        self.response.bytes_to_count()
    }

    async fn wait_until_sent(&mut self, latest_end: Option<Instant>) -> bool {
        let patience = self.write_timeout;
        self.response.wait_until_sent(&mut self.session, patience, latest_end).await
    }

    fn keep_until_sent(&mut self, held: HeldBytesGuard) {
        self.response.keep_until_sent(held);
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
        let part = ResponsePart::of_reply(self.session.is_body_done());
        self.send(body, part, true).await
    }
}
