//! The fast path over HTTP/2: riskgate serves a request without Pingora's proxy. It answers where
//! it accepts the stream, if it can. Only a request that has to wait, for the store, for a server
//! or for the client, gets a task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::HttpSession;

use super::active_requests::ActiveRequestGuard;
use super::stream_client::{Http2Client, send_on_stream};
use crate::downstream::boxed::box_future;
use crate::downstream::connection_tracker::CountGuard;
use crate::downstream::context::ListenerContext;
use crate::downstream::exchange_client::ExchangeClient;
use crate::downstream::fast_path_exchange::{
    ExchangeEnd, ForwardedRequest, admit_body, exchange_with_server,
};
use crate::gate::{
    ConnectionFacts, Decision, PlainHead, RequestContext, StartTime, UnchargedRoute,
};
use crate::message::request_head::{
    RequestFields, check_http2_request, is_plain_method, takes_body,
};
use crate::message::response::Reply;
use crate::proxy::request_body::{
    BodyOutlook, HeldBody, HoldError, MAX_HELD_BODY_BYTES, announced_length, discard_rest_of_body,
    hold_body,
};

/// The guards of a request that is being served.
pub(super) type RequestGuards = (ActiveRequestGuard, CountGuard);

/// A request that is being served. It results in the request if the Pingora path has to serve it.
type Serving = Pin<Box<dyn Future<Output = Option<(Box<HttpSession>, RequestGuards)>> + Send>>;

/// What the gates decided about a request.
enum Judged {
    /// riskgate answers it.
    Reply(Reply),
    /// It is forwarded. A request that may have a body is charged when the body is complete.
    Forward(Option<UnchargedRoute>),
}

/// Serves a request, or returns it if it is for the Pingora path. The request is answered when this
/// function returns, unless it has to wait; then a task goes on.
pub(super) async fn serve_or_return(
    context: &Arc<ListenerContext>,
    session: Box<HttpSession>,
    connection: &ConnectionFacts,
    guards: RequestGuards,
) -> Option<(Box<HttpSession>, RequestGuards)> {
    let connection = connection.clone();
    let mut serving: Serving = Box::pin(serve(Arc::clone(context), session, connection, guards));
    match poll_fn(|task| Poll::Ready(serving.as_mut().poll(task))).await {
        Poll::Ready(unserved) => unserved,
        Poll::Pending => {
            tokio::spawn(serving);
            None
        }
    }
}

/// Returns the fields of a request that the fast path serves: one without a field that only the
/// Pingora path handles, and with no body or with a short one whose length is announced.
fn read_if_served<'s>(
    context: &ListenerContext,
    session: &'s HttpSession,
) -> Option<RequestFields<'s>> {
    let header = session.req_header();
    let (method, has_body) = (header.method.as_str().as_bytes(), !session.is_body_done());
    let is_body_short =
        || announced_length(header).is_some_and(|length| length <= MAX_HELD_BODY_BYTES);
    if !takes_body(method) && (!is_plain_method(method) || has_body)
        || has_body && !is_body_short()
        || context.gate.is_asked_by_proxy(header.raw_path())
    {
        return None;
    }
    let fields = check_http2_request(header, has_body, &context.options.request_limits).ok()?;
    let is_served = match takes_body(method) {
        true => fields.are_plain_beside_framing(),
        false => fields.are_plain(),
    };
    is_served.then_some(fields)
}

async fn serve(
    context: Arc<ListenerContext>,
    session: Box<HttpSession>,
    connection: ConnectionFacts,
    guards: RequestGuards,
) -> Option<(Box<HttpSession>, RequestGuards)> {
    let Some(fields) = read_if_served(&context, &session) else {
        return Some((session, guards));
    };
    let gate = &context.gate;
    let header = session.req_header();
    let (method, target) = (header.method.as_str(), header.raw_path());
    let head = PlainHead { method, target, known: &fields, fields: header };
    let mut ctx = gate.begin_request(StartTime::now(), &connection, "HTTP/2", head);
    let request = gate.read_parts(head);
    let judged = match takes_body(method.as_bytes()) {
        true => match gate.admit_body(&request, &mut ctx) {
            // riskgate itself answers the request.
            None => return Some((session, guards)),
            Some(Ok(route)) => Judged::Forward(Some(route)),
            Some(Err(reply)) => Judged::Reply(reply),
        },
        false => match gate.judge_request(&request, &mut ctx).await {
            Decision::Reply(reply) => Judged::Reply(reply),
            Decision::Forward => Judged::Forward(None),
        },
    };
    match judged {
        Judged::Reply(reply) => answer(&context, session, &reply, ctx).await,
        Judged::Forward(route) => box_future(|| forward(&context, session, route, ctx)).await,
    }
    None
}

/// Answers a request with a response of riskgate.
async fn answer(
    context: &ListenerContext,
    mut session: Box<HttpSession>,
    reply: &Reply,
    mut ctx: RequestContext,
) {
    session.set_write_timeout(Some(context.options.write_timeout));
    let (header, body) = ctx.header_and_body(reply);
    if !send_on_stream(&mut session, Some(header), body, true).await {
        ctx.set_aborted_outcome();
    }
    context.gate.count_and_log_on_fast_path(&ctx, session.req_header());
    if !session.is_body_done() {
        let mut session = ServerSession::new_http2(*session);
        box_future(|| discard_rest_of_body(&mut session)).await;
    }
}

/// Receives the body of a request, forwards the request, and forwards the response.
async fn forward(
    context: &ListenerContext,
    session: Box<HttpSession>,
    route: Option<UnchargedRoute>,
    mut ctx: RequestContext,
) {
    let mut session = ServerSession::new_http2(*session);
    // The header is borrowed while the stream is read and written.
    let (no_header, ()) = http::Request::new(()).into_parts();
    let header = std::mem::replace(session.req_header_mut(), RequestHeader::from(no_header));
    let (head, ctx) = (&header, &mut ctx);
    let admitted = match route {
        None => Ok(None),
        Some(route) => {
            let length = announced_length(head);
            let announces_body = length.is_some() || !session.is_body_done();
            let received = match announces_body {
                true => receive_body(context, &mut session, length, ctx).await,
                false => Ok(Bytes::new()),
            };
            let admitted = admit_body(context, head, received, route, ctx).await;
            admitted.map(|body| Some(body).filter(|_| announces_body))
        }
    };
    let mut client = Http2Client::new(session, context.options.write_timeout);
    let is_answered = match admitted {
        Ok(body) => {
            let request = ForwardedRequest { head, body, wants_close: false };
            let ended = exchange_with_server(context, &mut client, &request, ctx).await;
            matches!(ended, ExchangeEnd::Answered { .. })
        }
        Err(None) => false,
        Err(Some(reply)) => client.send_reply(&reply, false, ctx).await,
    };
    context.gate.count_and_log_on_fast_path(ctx, head);
    if is_answered {
        discard_rest_of_body(&mut client.into_session()).await;
    }
    // Otherwise the end of the session resets the stream, behind what the client still gets.
}

/// Receives the whole body of a request.
async fn receive_body(
    context: &ListenerContext,
    session: &mut ServerSession,
    announced_length: Option<usize>,
    ctx: &RequestContext,
) -> Result<Bytes, HoldError> {
    let upstreams = &context.upstreams;
    let mut held = upstreams.begin_held_body(ctx.client_address);
    let outlook = BodyOutlook { announced_length, max_last_part: 0 };
    let options = upstreams.body_options();
    match hold_body(session, outlook, Bytes::new(), &mut held, options).await? {
        HeldBody::Whole(body) | HeldBody::Start(body) => Ok(body),
    }
}
