//! The fast path over HTTP/2: riskgate answers a plain request where it accepts the stream, without
//! Pingora's proxy and without a task.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HeaderName, HeaderValue, ORIGIN};
use pingora::protocols::http::v2::server::HttpSession;

use super::active_requests::ActiveRequestGuard;
use crate::downstream::connection_tracker::CountGuard;
use crate::downstream::context::ListenerContext;
use crate::gate::admission::OriginHeader;
use crate::gate::{Decision, RequestContext, RequestParts};
use crate::message::request_head::check_http2_request;
use crate::message::response::X_REQUEST_ID;
use crate::model::refusal::Refusal;

/// The guards of a request that is being served.
type RequestGuards = (ActiveRequestGuard, CountGuard);

/// Returns true if this request is plain, and riskgate answers it itself: a GET, HEAD or OPTIONS
/// without a body and without a field that only the Pingora path handles.
pub(super) fn is_plain_request(context: &ListenerContext, session: &HttpSession) -> bool {
    let header = session.req_header();
    matches!(header.method.as_str(), "GET" | "HEAD" | "OPTIONS")
        && session.is_body_done()
        && check_http2_request(header, false, &context.options.request_limits)
            .is_ok_and(|fields| fields.allow_fast_path())
        && !context.gate.forwards(header.method.as_str(), header.raw_path())
}

/// Answers a plain request. It does so before it returns, unless the request has to wait for the
/// store or for the client; then a task goes on.
pub(super) async fn answer_plain_request(
    context: &Arc<ListenerContext>,
    session: HttpSession,
    client_address: Option<IpAddr>,
    guards: RequestGuards,
) {
    let answer = answer(Arc::clone(context), session, client_address, guards);
    let mut answer: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(answer);
    let is_answered = poll_fn(|task| Poll::Ready(answer.as_mut().poll(task).is_ready())).await;
    if !is_answered {
        tokio::spawn(answer);
    }
}

async fn answer(
    context: Arc<ListenerContext>,
    mut session: HttpSession,
    client_address: Option<IpAddr>,
    _guards: RequestGuards,
) {
    let gate = &context.gate;
    let mut ctx = RequestContext::default();
    let header = session.req_header();
    let single = |name: HeaderName| {
        let values = header.headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
        RequestParts::value_if_single(values)
    };
    let authorization = single(AUTHORIZATION);
    ctx.common_headers.request_id =
        gate.accept_or_generate_request_id(single(X_REQUEST_ID), authorization.into_iter());
    let parts = RequestParts {
        method: header.method.as_str(),
        target: header.raw_path(),
        authorization,
        origin: OriginHeader::read(single(ORIGIN).into_iter()),
        has_cors_request_method: header.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD),
    };
    let decision = match gate.judge_without_wait(&parts, &mut ctx) {
        Ok(decision) => decision,
        Err(matched) => gate.judge_after_wait(matched, &parts, &mut ctx).await,
    };
    let reply = match decision {
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
    gate.state().metrics.requests.fast_path_requests.inc();
    let header = session.req_header();
    let (method, target) = (header.method.as_str(), header.raw_path());
    gate.count_and_log_request(&ctx, method, target, client_address);
}
