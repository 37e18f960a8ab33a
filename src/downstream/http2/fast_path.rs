//! The fast path over HTTP/2: riskgate serves a request without Pingora's proxy. If it can answer
//! at once, it does so in the task of the connection. A request that has to wait for the store, for
//! a server or for the client gets a task of its own.
//!
//! If a body is longer than riskgate holds, the Pingora path serves the rest of the request: see
//! [`BegunUpload`].

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::HttpSession;

use super::stream_client::{Http2Client, send_whole};
use crate::downstream::boxed::box_future;
use crate::downstream::context::ListenerContext;
use crate::downstream::fast_path_exchange::{
    ExchangeEnd, RequestToForward, charge_and_screen, exchange_with_server, send_reply,
};
use crate::gate::{
    ConnectionFacts, FAST_PATH_TASK_BYTES, GateDecision, PlainHead, RequestContext, StartTime,
    UnchargedRoute, UnsentResponse, discard_rest_of_body, waiting_request_bytes,
};
use crate::message::request_head::{RequestFields, check_http2_request, takes_body};
use crate::message::response::Reply;
use crate::proxy::BegunUpload;
use crate::proxy::request_body::{
    BodyOutlook, HeldBody, HoldError, MAX_HELD_BODY_BYTES, announced_length, announces_body,
    hold_body,
};

/// A request that the Pingora path has to serve, and its response.
type UnservedRequest = (Box<HttpSession>, Arc<UnsentResponse>);

/// The future that serves a request. Its output is the request if the Pingora path has to serve it,
/// otherwise `None`.
type RequestFuture = Pin<Box<dyn Future<Output = Option<UnservedRequest>> + Send>>;

/// What riskgate does with a request after the gates.
enum NextStep {
    /// riskgate answers the request.
    Reply(Reply),
    /// riskgate forwards the request. If the method takes a body, riskgate charges the call of this
    /// route after it has received the body, or the start of a longer body.
    Forward(Option<UnchargedRoute>),
}

/// Serves a request, or returns it if the Pingora path has to serve it. If the request has to wait,
/// this function starts a task that serves the rest, and returns `None`.
pub(super) async fn serve_or_return(
    context: &Arc<ListenerContext>,
    session: Box<HttpSession>,
    connection: &ConnectionFacts,
    response: Arc<UnsentResponse>,
) -> Option<UnservedRequest> {
    let connection = connection.clone();
    let mut serving: RequestFuture =
        Box::pin(serve(Arc::clone(context), session, connection, response));
    match poll_fn(|task| Poll::Ready(serving.as_mut().poll(task))).await {
        Poll::Ready(unserved) => unserved,
        Poll::Pending => {
            tokio::spawn(serving);
            None
        }
    }
}

/// Returns the fields of a request that the fast path serves. `None` in each of these cases:
/// - A field of the request needs the Pingora path, or the request is malformed.
/// - The request has a body, but the method takes none.
/// - A proxy asks with the request.
fn read_fields_for_fast_path<'s>(
    context: &ListenerContext,
    session: &'s HttpSession,
) -> Option<RequestFields<'s>> {
    let header = session.req_header();
    let (method, has_body) = (header.method.as_str().as_bytes(), !session.is_body_done());
    if has_body && !takes_body(method) || context.gate.is_asked_by_proxy(header.raw_path()) {
        return None;
    }
    let fields = check_http2_request(header, &context.options.request_limits).ok()?;
    fields.may_take_fast_path(method).then_some(fields)
}

/// Serves a request, or returns it if the Pingora path has to serve it.
pub(super) async fn serve(
    context: Arc<ListenerContext>,
    session: Box<HttpSession>,
    connection: ConnectionFacts,
    response: Arc<UnsentResponse>,
) -> Option<UnservedRequest> {
    let Some(fields) = read_fields_for_fast_path(&context, &session) else {
        return Some((session, response));
    };
    let gate = &context.gate;
    let header = session.req_header();
    let (method, target) = (header.method.as_str(), header.raw_path());
    let head = PlainHead { method, target, known: &fields, fields: header };
    let mut ctx = gate.begin_request(StartTime::now(), &connection, "HTTP/2", head);
    let request = gate.read_parts(head);
    let next = match takes_body(method.as_bytes()) {
        true => match gate.pass_gates_before_body(&request, &mut ctx) {
            // The request is for no upstream server. The Pingora path answers it.
            None => return Some((session, response)),
            Some(Ok(route)) => NextStep::Forward(Some(route)),
            Some(Err(reply)) => NextStep::Reply(reply),
        },
        false => match gate.judge_request(&request, &mut ctx).await {
            GateDecision::Reply(reply) => NextStep::Reply(reply),
            GateDecision::Forward => NextStep::Forward(None),
        },
    };
    match next {
        NextStep::Reply(reply) => answer(&context, session, &reply, &response, &mut ctx).await,
        NextStep::Forward(route) => {
            return box_future(|| forward(&context, session, route, response, ctx)).await;
        }
    }
    None
}

/// Answers a request with a response of riskgate.
async fn answer(
    context: &ListenerContext,
    mut session: Box<HttpSession>,
    reply: &Reply,
    response: &Arc<UnsentResponse>,
    ctx: &mut RequestContext,
) {
    session.set_write_timeout(Some(context.options.write_timeout));
    if !send_whole(&mut session, ctx.header_and_body(reply), response).await {
        ctx.record_unsent_reply();
    }
    context.gate.count_and_log_on_fast_path(ctx, session.req_header());
    if !session.is_body_done() {
        let held = context.gate.begin_held_body(ctx);
        box_future(|| async move {
            let request_bytes = waiting_request_bytes(session.req_header(), FAST_PATH_TASK_BYTES);
            let mut client = ServerSession::new_http2(*session);
            discard_rest_of_body(&mut client, held, request_bytes).await
        })
        .await;
    }
}

/// Receives the body of a request, forwards the request, and forwards the response. Returns the
/// request if the body is longer than riskgate holds.
async fn forward(
    context: &ListenerContext,
    session: Box<HttpSession>,
    route: Option<UnchargedRoute>,
    response: Arc<UnsentResponse>,
    mut ctx: RequestContext,
) -> Option<UnservedRequest> {
    let mut session = ServerSession::new_http2(*session);
    let mut header = take_header(&mut session);
    let head = &header;
    let received = match route {
        None => None,
        Some(route) => {
            let announces_body = announces_body(announced_length(head), &mut session);
            let received = match receive_body(context, &mut session, head, &ctx).await {
                Ok(HeldBody::Start(start)) => {
                    BegunUpload { ctx, route, start }.attach_to(&mut header);
                    return Some((put_header_back(session, header)?, response));
                }
                Ok(HeldBody::Whole(body)) => Ok(body),
                Err(error) => Err(error),
            };
            Some((route, received, announces_body))
        }
    };
    let ctx = &mut ctx;
    let admitted = match received {
        None => Ok(None),
        Some((route, received, announces_body)) => {
            let admitted = charge_and_screen(context, head, received, route, ctx).await;
            admitted.map(|body| Some(body).filter(|_| announces_body))
        }
    };
    let mut client = Http2Client::new(session, context.options.write_timeout, response);
    let ended = match admitted {
        Ok(body) => {
            let request = RequestToForward { head, body, wants_close: false };
            exchange_with_server(context, &mut client, &request, ctx).await
        }
        Err(None) => ExchangeEnd::Aborted { is_client_gone: true },
        Err(Some(reply)) => send_reply(&mut client, &reply, false, ctx).await,
    };
    context.gate.count_and_log_on_fast_path(ctx, head);
    if matches!(ended, ExchangeEnd::Answered { .. }) {
        let held = context.gate.begin_held_body(ctx);
        let request_bytes = waiting_request_bytes(head, FAST_PATH_TASK_BYTES);
        discard_rest_of_body(&mut client.session, held, request_bytes).await;
    }
    // If the response is incomplete, the end of the session resets the stream after the bytes that
    // are still to be sent.
    None
}

/// Takes the header out of a session, so that the caller can use the header while it reads and
/// writes the stream. The session keeps `Content-Length`, which tells it that a body is empty.
fn take_header(session: &mut ServerSession) -> RequestHeader {
    let (mut kept, ()) = http::Request::new(()).into_parts();
    let length = session.req_header().headers.get(CONTENT_LENGTH);
    kept.headers.extend(length.map(|length| (CONTENT_LENGTH, length.clone())));
    std::mem::replace(session.req_header_mut(), RequestHeader::from(kept))
}

/// Whether the body of a request is longer than riskgate holds, by its header, or may be longer.
pub(super) fn may_be_long(header: &RequestHeader) -> bool {
    announced_length(header).is_none_or(|length| length > MAX_HELD_BODY_BYTES)
}

/// Puts the header back that [`take_header`] took.
fn put_header_back(session: ServerSession, header: RequestHeader) -> Option<Box<HttpSession>> {
    let ServerSession::H2(mut session) = session else { return None };
    *session.req_header_mut() = header;
    Some(Box::new(session))
}

/// Receives the whole body of a request, or the start of a longer one. Does not wait for the start
/// of a body that is known to be longer, unless riskgate screens it.
async fn receive_body(
    context: &ListenerContext,
    session: &mut ServerSession,
    head: &RequestHeader,
    ctx: &RequestContext,
) -> Result<HeldBody, HoldError> {
    if session.is_body_done() {
        return Ok(HeldBody::Whole(Bytes::new()));
    }
    if !ctx.is_body_screened() && may_be_long(head) && announced_length(head).is_some() {
        return Ok(HeldBody::Start(Bytes::new()));
    }
    let mut held = context.gate.begin_held_body(ctx);
    let outlook = BodyOutlook { announced_length: announced_length(head), max_last_part: 0 };
    let options = context.gate.body_options();
    let held = (&mut held, waiting_request_bytes(head, FAST_PATH_TASK_BYTES));
    hold_body(session, outlook, Bytes::new(), held, options).await
}
