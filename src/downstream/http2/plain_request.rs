//! The fast path over HTTP/2: riskgate answers a plain request where it accepts the stream, without
//! Pingora's proxy. Only a request that has to wait for the store or for the client gets a task. A
//! plain request that is to be forwarded takes the Pingora path.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use pingora::protocols::http::v2::server::HttpSession;

use super::active_requests::ActiveRequestGuard;
use crate::downstream::connection_tracker::CountGuard;
use crate::downstream::context::ListenerContext;
use crate::gate::{ConnectionFacts, PlainHead, StartTime};
use crate::message::request_head::{RequestFields, check_http2_request, is_plain_method};

/// The guards of a request that is being served.
pub(super) type RequestGuards = (ActiveRequestGuard, CountGuard);

/// An answer in progress. It results in the request if the Pingora path has to serve it.
type Answer = Pin<Box<dyn Future<Output = Option<(Box<HttpSession>, RequestGuards)>> + Send>>;

/// Answers a plain request that is not forwarded, and returns every other request. It answers
/// before it returns, unless the request has to wait for the store or for the client; then a task
/// goes on.
pub(super) async fn answer_or_return(
    context: &Arc<ListenerContext>,
    session: Box<HttpSession>,
    connection: &ConnectionFacts,
    guards: RequestGuards,
) -> Option<(Box<HttpSession>, RequestGuards)> {
    let connection = connection.clone();
    let mut answer: Answer = Box::pin(answer(Arc::clone(context), session, connection, guards));
    match poll_fn(|task| Poll::Ready(answer.as_mut().poll(task))).await {
        Poll::Ready(unanswered) => unanswered,
        Poll::Pending => {
            tokio::spawn(answer);
            None
        }
    }
}

/// Returns the fields of a plain request: a GET, HEAD or OPTIONS without a body and without a field
/// that only the Pingora path handles.
fn read_if_plain<'s>(
    context: &ListenerContext,
    session: &'s HttpSession,
) -> Option<RequestFields<'s>> {
    let header = session.req_header();
    if !is_plain_method(header.method.as_str().as_bytes()) || !session.is_body_done() {
        return None;
    }
    let fields = check_http2_request(header, false, &context.options.request_limits).ok()?;
    let is_asked_by_proxy = context.gate.is_asked_by_proxy(header.raw_path());
    (fields.are_plain() && !is_asked_by_proxy).then_some(fields)
}

async fn answer(
    context: Arc<ListenerContext>,
    mut session: Box<HttpSession>,
    connection: ConnectionFacts,
    guards: RequestGuards,
) -> Option<(Box<HttpSession>, RequestGuards)> {
    let Some(fields) = read_if_plain(&context, &session) else {
        return Some((session, guards));
    };
    let gate = &context.gate;
    let header = session.req_header();
    let (method, target) = (header.method.as_str(), header.raw_path());
    let head = PlainHead { method, target, known: &fields, fields: header };
    let mut ctx = gate.begin_request(StartTime::now(), &connection, "HTTP/2", head);
    let request = gate.read_parts(head);
    let Some(reply) = gate.answer_unless_route_is_forwarded(&request, &mut ctx).await else {
        return Some((session, guards));
    };
    session.set_write_timeout(Some(context.options.write_timeout));
    let (response, body) = ctx.header_and_body(&reply);
    let written = async {
        session.write_response_header(response, body.is_empty())?;
        match body.is_empty() {
            true => Ok(()),
            false => session.write_body(body, true).await,
        }
    };
    if written.await.is_err() {
        ctx.set_aborted_outcome();
    }
    gate.count_and_log_on_fast_path(&ctx, session.req_header());
    None
}
