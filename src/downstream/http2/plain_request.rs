//! The fast path over HTTP/2: riskgate answers a plain request where it accepts the stream, without
//! Pingora's proxy. Only a request that has to wait for the store or for the client gets a task. A
//! plain request that is to be forwarded takes the Pingora path.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::USER_AGENT;
use pingora::protocols::http::v2::server::HttpSession;

use super::active_requests::ActiveRequestGuard;
use crate::downstream::connection_tracker::CountGuard;
use crate::downstream::context::ListenerContext;
use crate::gate::{Decision, RequestContext, iter_values};
use crate::message::request_head::{RequestFields, check_http2_request, is_plain_method};
use crate::message::response::TRACEPARENT;
use crate::model::refusal::Refusal;

/// The guards of a request that is being served.
pub(super) type RequestGuards = (ActiveRequestGuard, CountGuard);

/// An answer in progress. It results in the request if the Pingora path has to serve it.
type Answer = Pin<Box<dyn Future<Output = Option<(Box<HttpSession>, RequestGuards)>> + Send>>;

/// Answers a plain request that is not forwarded, and returns every other request. It answers before
/// it returns, unless the request has to wait for the store or for the client; then a task goes on.
pub(super) async fn answer_or_return(
    context: &Arc<ListenerContext>,
    session: Box<HttpSession>,
    peer_address: Option<IpAddr>,
    guards: RequestGuards,
) -> Option<(Box<HttpSession>, RequestGuards)> {
    let mut answer: Answer = Box::pin(answer(Arc::clone(context), session, peer_address, guards));
    match poll_fn(|task| Poll::Ready(answer.as_mut().poll(task))).await {
        Poll::Ready(unanswered) => unanswered,
        Poll::Pending => {
            tokio::spawn(answer);
            None
        }
    }
}

/// Returns the fields of a plain request that riskgate answers itself: a GET, HEAD or OPTIONS
/// without a body and without a field that only the Pingora path handles.
fn read_if_answerable<'s>(
    context: &ListenerContext,
    session: &'s HttpSession,
) -> Option<RequestFields<'s>> {
    let header = session.req_header();
    if !is_plain_method(header.method.as_str().as_bytes()) || !session.is_body_done() {
        return None;
    }
    let fields = check_http2_request(header, false, &context.options.request_limits).ok()?;
    let is_answerable = fields.are_plain()
        && !context.gate.needs_pingora_path(header.method.as_str(), header.raw_path());
    is_answerable.then_some(fields)
}

async fn answer(
    context: Arc<ListenerContext>,
    mut session: Box<HttpSession>,
    peer_address: Option<IpAddr>,
    guards: RequestGuards,
) -> Option<(Box<HttpSession>, RequestGuards)> {
    let Some(fields) = read_if_answerable(&context, &session) else {
        return Some((session, guards));
    };
    let gate = &context.gate;
    let mut ctx = RequestContext::default();
    ctx.record_connection(session.digest(), "HTTP/2");
    ctx.common_headers.hsts = gate.hsts(ctx.tls_version.is_some());
    let header = session.req_header();
    let (method, target) = (header.method.as_str(), header.raw_path());
    ctx.client_address = gate.find_client_address_in(peer_address, header);
    gate.begin_trace(peer_address, || iter_values(header, TRACEPARENT), &mut ctx);
    let key_values = || gate.key_header().into_iter().flat_map(|name| iter_values(header, name));
    let request = gate.read_plain_request(method, target, &fields, key_values, &mut ctx);
    let reply = match gate.judge_request(&request, &mut ctx).await {
        Decision::Reply(reply) => reply,
        // A reload has just added a route for this path.
        Decision::Forward => gate.finish_with_refusal(&Refusal::UpstreamUnavailable, &mut ctx),
    };
    let body = match header.method == http::Method::HEAD {
        true => Bytes::new(),
        false => reply.body().clone(),
    };
    session.set_write_timeout(Some(context.options.write_timeout));
    let response = Box::new(reply.to_response_header(&ctx.common_headers));
    ctx.response_bytes = body.len() as u64;
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
    let header = session.req_header();
    let (method, target) = (header.method.as_str(), header.raw_path());
    let user_agent = || iter_values(header, USER_AGENT).next();
    gate.count_and_log_fast_path_request(&ctx, method, target, user_agent);
    None
}
