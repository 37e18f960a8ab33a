//! An exchange whose client speaks HTTP/1.1.

use std::future::{pending, poll_fn};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::boxed::box_future;
use super::client_close_watch::{CLIENT_LEFT_CHECK_INTERVAL, ClientCloseWatch};
use super::client_io::ClientIo;
use super::context::ListenerContext;
use super::exchange_client::ExchangeClient;
use super::fast_path::{FastPath, RequestForUpstream};
use super::fast_path_exchange::{
    ExchangeEnd, RequestToForward, charge_and_screen, exchange_with_server, send_reply,
};
use super::small_body::SmallBody;
use crate::exchange::closes_after_response;
use crate::gate::{ParsedBytes, RequestContext, UnchargedRoute};
use crate::message::response::Reply;
use crate::proxy::upstream::Http1Header;

/// How the client's connection continues after a request.
pub(super) enum ConnectionDisposition {
    /// The next request may follow.
    KeepAlive,
    /// riskgate shuts the connection down after the response.
    Close,
    /// The Pingora path takes over.
    Fallback,
    /// The connection has ended, or the client does not read: riskgate closes it at once.
    Broken,
}

/// A connection of HTTP/1.1.
struct Http1Client<'c> {
    context: &'c ListenerContext,
    client_io: &'c mut ClientIo,
    fast_path: &'c mut FastPath,
    output: Vec<u8>,
    /// Whether the response of a server has begun.
    has_response_begun: bool,
}

/// Sends `pending_output`, the responses to the client's earlier requests, then forwards the
/// request and its response. The request stays in its box: without the box, each call would copy
/// the whole request into the future of this function.
pub(super) async fn forward_request(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    fast_path: &mut FastPath,
    mut request: Box<RequestForUpstream>,
    pending_output: Vec<u8>,
) -> ConnectionDisposition {
    let header = client_io.read_buf.split_to(request.header_length);
    let head = ParsedBytes(&header);
    let ctx = &mut request.ctx;
    let mut client = Http1Client {
        context,
        client_io,
        fast_path,
        output: pending_output,
        has_response_begun: false,
    };
    if !client.send_output(false, None).await {
        ctx.set_aborted_outcome();
        context.gate.count_and_log_on_fast_path(ctx, head);
        return ConnectionDisposition::Broken;
    }
    let admitted = match request.uncharged.take() {
        None => Ok(None),
        Some((body, route)) => {
            let client_io = &mut *client.client_io;
            let admitted = box_future(|| {
                receive_charge_and_screen(context, client_io, head, body, route, ctx)
            });
            admitted.await.map(|body| Some(body).filter(|_| request.announces_body))
        }
    };
    let ended = match admitted {
        Ok(body) => {
            let forwarded = RequestToForward { head, body, wants_close: request.wants_close };
            exchange_with_server(context, &mut client, &forwarded, ctx).await
        }
        // The client has ended its side before its body was complete. Over TLS, an orderly close
        // still tells the client that nothing follows.
        Err(None) => ExchangeEnd::Aborted { is_client_gone: false },
        Err(Some(reply)) => {
            let is_ending = context.tracker.is_draining();
            let should_close = closes_after_response(Some(&reply), request.wants_close, is_ending);
            send_reply(&mut client, &reply, should_close, ctx).await
        }
    };
    context.gate.count_and_log_on_fast_path(ctx, head);
    match ended {
        ExchangeEnd::Answered { should_close: false } => ConnectionDisposition::KeepAlive,
        // A client that has a part of a response must receive all of this part before the close.
        ExchangeEnd::Answered { should_close: true }
        | ExchangeEnd::Aborted { is_client_gone: false } => ConnectionDisposition::Close,
        ExchangeEnd::Aborted { is_client_gone: true } => ConnectionDisposition::Broken,
    }
}

/// Receives the body of a request, charges the call, and screens the form: see
/// [`charge_and_screen`].
async fn receive_charge_and_screen(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    head: ParsedBytes<'_>,
    body: SmallBody,
    route: UnchargedRoute,
    ctx: &mut RequestContext,
) -> Result<Bytes, Option<Reply>> {
    let mut held = context.gate.begin_held_body(ctx);
    let received = body.receive(client_io, &mut held, context.gate.body_options()).await;
    drop(held);
    charge_and_screen(context, head, received, route, ctx).await
}

impl ExchangeClient for Http1Client<'_> {
    type Header = Http1Header;

    fn begin_header(&mut self) -> Http1Header {
        // The earlier output is sent, so the header can use its memory.
        Http1Header::in_buffer(std::mem::take(&mut self.output))
    }

    async fn wait_until_gone(&mut self, with_timer: bool) {
        if !with_timer {
            return pending().await;
        }
        let has_response_begun = self.has_response_begun;
        // Before a response has begun, the caller has already waited for `UNWATCHED_WAIT`.
        let wait = if has_response_begun { CLIENT_LEFT_CHECK_INTERVAL } else { Duration::ZERO };
        let mut watch = ClientCloseWatch::with_first_check_after(wait);
        poll_fn(|context| watch.poll_client_left(self.client_io, has_response_begun, context)).await
    }

    fn set_response_header(&mut self, header: Http1Header, should_close: bool) {
        self.has_response_begun = true;
        self.output = header.finish(self.fast_path.date_header_value(), should_close);
    }

    fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    async fn send_output(&mut self, _is_end: bool, latest_end: Option<Instant>) -> bool {
        let write_timeout = self.context.options.write_timeout;
        let is_sent = self.client_io.send_bytes(&self.output, write_timeout, latest_end).await;
        self.output.clear();
        is_sent
    }

    async fn send_reply(
        &mut self,
        reply: &Reply,
        should_close: bool,
        ctx: &mut RequestContext,
    ) -> bool {
        let date = self.fast_path.date_header_value();
        ctx.append_as_http1(reply, date, should_close, &mut self.output);
        self.send_output(true, None).await
    }
}
