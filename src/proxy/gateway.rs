//! The whole proxy on the Pingora path, as the steps of one request.
//!
//! `request_filter` runs the gates, `upstream_peer` chooses a server, `fail_to_proxy` turns an
//! error into a response, and `logging` counts the request. The other filters decide about retries,
//! and what riskgate forwards in each direction. The rules of each step are in the module that the
//! step calls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::modules::http::HttpModules;
use pingora::protocols::Digest;
use pingora::services::ServiceWithDependents;
use pingora::services::background::GenBackgroundService;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, Session};

use crate::exchange::{BodyFault, BodyFraming, Failure, ResponseFraming, StatusKind};
use crate::gate::{
    BodyToForward, FailedExchange, Gate, HeldBytesGuard, PINGORA_TASK_BYTES, RequestContext,
    ResponsePart, UnsentResponse, classify_error, has_final_response_started,
};
use crate::proxy::admission::{BodyReadRules, admit_request};
use crate::proxy::request_body;
use crate::proxy::upload_watch;
use crate::proxy::upstream::{
    ConnectionGuard, CountedAttempts, ExchangeDeadline, ExchangePermit, Upstreams, describe_error,
};
use crate::proxy::upstream_service::UpstreamWatchService;
use crate::support::test_fault::{TestFault, is_injected};

/// The most bytes of a response that Pingora queues before it writes them: four parts and one that
/// it has taken, of 64 KiB each.
const MAX_QUEUED_RESPONSE_BYTES: usize = 5 * 64 * 1024;

/// riskgate as a complete proxy: a [`Gate`] in front of upstream servers. [`Mount::gateway`]
/// creates one from a config file; pass it to Pingora's `http_proxy_service`, or wrap it in a
/// `ProxyHttp` of your own that passes on all filters which this one has.
///
/// A gateway chooses the server, retries, and keeps the deadline of the exchange. It does not limit
/// connections or check the sizes and the grammar of request headers: the listeners of `riskgate
/// run` do.
///
/// [`Mount::gateway`]: crate::Mount::gateway
pub struct Gateway {
    gate: Gate,
    upstreams: Arc<Upstreams>,
    /// See [`BodyReadRules::are_parts_bounded`].
    are_parts_bounded: bool,
}

/// The state of one request in the [`Gateway`]: its `ProxyHttp::CTX`. It has no public parts.
#[derive(Default)]
pub struct ProxyContext {
    request_context: RequestContext,
    /// The deadline of the exchange; `None` before it begins.
    deadline: Option<ExchangeDeadline>,
    attempts: CountedAttempts,
    /// What failed in the last attempt; `None` if nothing failed, or if only Pingora knows.
    failure: Option<Failure>,
    /// The address of the server that the current attempt asks.
    server_address: String,
    /// Watches the upstream connection while an exchange runs.
    connection_guard: Option<ConnectionGuard>,
    /// Whether the whole response of the upstream server has arrived.
    is_upstream_response_complete: bool,
    /// Whether only the end of the server's connection ends the response; `None` before its header.
    does_response_end_with_connection: Option<bool>,
    /// The permit for this request's exchange. `None` before the exchange, and once the server is
    /// free for other exchanges.
    exchange_permit: Option<ExchangePermit>,
    /// Counts the bytes of the end of the response that wait for the client.
    held_response: Option<HeldBytesGuard>,
    /// The bytes of the response's body that Pingora got for the client.
    passed_response_bytes: u64,
    is_logged: bool,
}

impl Drop for ProxyContext {
    fn drop(&mut self) {
        if !self.is_logged {
            let mut request = std::mem::take(&mut self.request_context);
            request.response_bytes = self.passed_response_bytes;
            upload_watch::keep_unlogged_request(request);
        }
    }
}

impl Gateway {
    /// Creates a gateway from a gate and its upstream servers.
    #[doc(hidden)]
    pub fn new(gate: Gate, upstreams: Arc<Upstreams>) -> Gateway {
        Gateway { gate, upstreams, are_parts_bounded: false }
    }

    /// Creates a gateway behind riskgate's own listeners, on which a read of an HTTP/1.1 body ends
    /// at 64 KiB.
    pub(crate) fn behind_own_listeners(gate: Gate, upstreams: Arc<Upstreams>) -> Gateway {
        Gateway { gate, upstreams, are_parts_bounded: true }
    }

    /// Returns the service that checks the health of the upstream servers, and resolves their names
    /// again. Add the service to your server. Without the service, riskgate skips a server only
    /// after a connection to this server has failed, and keeps the addresses of the start.
    pub fn background_service(&self) -> impl ServiceWithDependents + use<> {
        let state = Arc::clone(self.gate.state());
        let service = UpstreamWatchService::new(Arc::clone(&self.upstreams), state);
        GenBackgroundService::new("upstream".to_owned(), Arc::new(service))
    }

    /// Renders the metrics of the gate and of its upstream servers in Prometheus' text format, for
    /// a page of your own.
    pub fn render_metrics(&self) -> Vec<u8> {
        self.upstreams.update_metrics(&self.gate.state().metrics.upstream);
        self.gate.render_metrics()
    }

    /// Records the failure of an attempt. Returns true if another attempt follows.
    fn record_failure(&self, ctx: &mut ProxyContext, failure: Failure) -> bool {
        ctx.failure = Some(failure);
        let is_past_deadline = ctx.is_past_deadline();
        let metrics = &self.gate.state().metrics.upstream;
        let ended = &mut ctx.request_context.attempts;
        ctx.attempts.end_with_failure(failure, is_past_deadline, metrics, ended)
    }

    /// Begins the exchange with a server.
    fn begin_exchange(&self, body: BodyToForward, ctx: &mut ProxyContext) {
        let request = &mut ctx.request_context;
        request.has_attempt_records = true;
        let since = match body {
            BodyToForward::Nothing => Some(request.exchange_start(false)),
            BodyToForward::Whole(_) => Some(request.exchange_start(true)),
            BodyToForward::Streamed { .. } => None,
        };
        ctx.deadline = Some(self.upstreams.exchange_deadline(request.time_limit, since));
        request.body = body;
    }
}

impl ProxyContext {
    fn is_past_deadline(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline.has_passed())
    }

    /// Returns true if the response must fail because its server is late. If the deadline is for
    /// the whole exchange, or the body has not begun, the deadline decides. If each part of the
    /// body has a deadline, the response must fail if the guard has ended the connection and if
    /// the end of the connection would end the body. If the body has a length or chunks, Pingora
    /// sees whether it is complete.
    fn must_fail_response(&self) -> bool {
        let is_for_body_part = self.deadline.is_some_and(|deadline| deadline.is_for_body_part());
        match is_for_body_part {
            true => {
                self.does_response_end_with_connection == Some(true)
                    && self.has_guard_ended_exchange()
            }
            false => self.is_past_deadline(),
        }
    }

    fn has_guard_ended_exchange(&self) -> bool {
        self.connection_guard.as_ref().is_some_and(ConnectionGuard::has_ended_exchange)
    }

    /// Tells the guard of the connection that the deadline has changed.
    fn move_deadline_of_guard(&self) {
        if let (Some(guard), Some(deadline)) = (&self.connection_guard, &self.deadline) {
            guard.set_end_time(deadline.end_time());
        }
    }

    /// Lets other requests use the server, if riskgate may hold the bytes of the response that may
    /// wait for the client.
    fn free_server(&mut self, gate: &Gate) {
        if self.exchange_permit.is_none() {
            return;
        }
        let waiting_bytes = usize::try_from(self.passed_response_bytes).unwrap_or(usize::MAX);
        let mut held = gate.begin_held_body(&self.request_context);
        if held.grow_to(waiting_bytes.min(MAX_QUEUED_RESPONSE_BYTES)) {
            (self.exchange_permit, self.held_response) = (None, Some(held));
        }
    }

    /// Lets the bytes of a response over HTTP/2 that wait for the client count until they are sent.
    /// If riskgate may not hold these bytes, the exchange keeps its permit until the client has
    /// taken them, or is too slow.
    async fn wait_until_sent_or_held(&mut self, session: &mut Session, is_complete: bool) {
        let permit = self.exchange_permit.take();
        let Some(response) = UnsentResponse::of_request(session.req_header()).cloned() else {
            return;
        };
        if let Some(held) = self.held_response.take() {
            response.keep_until_sent(held);
        } else if permit.is_some() && is_complete {
            let session = session.as_downstream_mut();
            if let Some(time) = session.get_write_timeout() {
                let _ = response.wait_until_sent(session, time, None).await;
            }
        }
    }

    /// If the exchange is complete, frees the server, and drops the guard of its connection.
    /// Pingora may reuse the connection for another request before it calls `logging` for this
    /// request. The deadline of this request must not end the other request's exchange.
    fn end_exchange_if_complete(&mut self, session: &mut Session, gate: &Gate) {
        if self.is_upstream_response_complete {
            upload_watch::record_response_end();
        }
        if self.is_upstream_response_complete && session.as_downstream_mut().is_body_done() {
            self.connection_guard = None;
            self.free_server(gate);
        }
    }
}

/// Returns where the body of this response ends.
fn body_framing(session: &Session, response: &ResponseHeader) -> BodyFraming {
    let is_head_method = session.req_header().method == http::Method::HEAD;
    ResponseFraming::of_header(response).map_or(BodyFraming::UntilClose, |framing| {
        framing.body_framing(response.status.as_u16(), is_head_method)
    })
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = ProxyContext;

    fn new_ctx(&self) -> ProxyContext {
        ProxyContext::default()
    }

    /// Adds no module: riskgate needs none, and each costs time in every request.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, ctx: &mut ProxyContext) -> Result<bool> {
        let reading = BodyReadRules {
            are_parts_bounded: self.are_parts_bounded,
            is_for_screening_alone: false,
        };
        let request = &mut ctx.request_context;
        let Some(body) = admit_request(&self.gate, session, request, reading).await? else {
            return Ok(true);
        };
        request_body::remove_expect(session.as_downstream_mut());
        self.begin_exchange(body, ctx);
        Ok(false)
    }

    async fn upstream_peer(
        &self,
        _session: &mut Session,
        ctx: &mut ProxyContext,
    ) -> Result<Box<HttpPeer>> {
        if ctx.request_context.permit.is_none() {
            return Error::e_explain(ErrorType::InternalError, "no permit");
        }
        ctx.failure = Some(Failure::NotStarted);
        let is_streamed = matches!(ctx.request_context.body, BodyToForward::Streamed { .. });
        if ctx.exchange_permit.is_none() {
            let too_many =
                || Error::explain(ErrorType::ConnectError, "too many exchanges").into_up();
            let client = ctx.request_context.client_address;
            let permit = match is_streamed {
                true => self.upstreams.acquire_upload_permit(client),
                false => self.upstreams.acquire_exchange_permit(client),
            };
            ctx.exchange_permit = Some(permit.ok_or_else(too_many)?);
        }
        ctx.attempts.start_attempt();
        let no_server = || Error::new_up(ErrorType::ConnectError);
        let deadline = ctx.deadline.as_ref().ok_or_else(no_server)?;
        let peer = self.upstreams.select_peer(deadline, ctx.attempts.is_retry());
        let mut peer = peer.ok_or_else(no_server)?;
        if is_streamed {
            // The server's time runs only once the whole body has arrived. The guard ends an
            // exchange at the deadline, or if the server does not take the bytes that have arrived.
            peer.options.read_timeout = None;
        }
        ctx.failure = None;
        ctx.server_address = peer._address.to_string();
        if let Some(server) = peer._address.as_inet() {
            ctx.attempts.mark_asked(*server);
        }
        Ok(Box::new(peer))
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        peer: &HttpPeer,
        ctx: &mut ProxyContext,
        mut error: Box<Error>,
    ) -> Box<Error> {
        if let Some(server) = peer._address.as_inet() {
            self.upstreams.eject_server(*server, &describe_error(&error));
        }
        error.set_retry(self.record_failure(ctx, Failure::Connect));
        error
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        reused: bool,
        peer: &HttpPeer,
        connection: std::os::unix::io::RawFd,
        _digest: Option<&Digest>,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        ctx.attempts.mark_connected();
        if let (false, Some(server), Some(since)) =
            (reused, peer._address.as_inet(), ctx.attempts.asked_since())
        {
            self.upstreams.record_connection(*server, since);
        }
        ctx.is_upstream_response_complete = false;
        ctx.does_response_end_with_connection = None;
        ctx.connection_guard = ctx
            .deadline
            .and_then(|deadline| self.upstreams.guard_connection(&deadline, connection));
        if matches!(ctx.request_context.body, BodyToForward::Streamed { .. }) {
            upload_watch::record_connection(ctx.connection_guard.as_ref().map(|it| it.socket()));
        }
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        let host = self.upstreams.host_header(&ctx.server_address);
        self.gate.upstream_request_filter(session, request, &ctx.request_context, host)
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut ProxyContext,
        reused: bool,
    ) -> Box<Error> {
        let is_idempotent = session.req_header().method.is_idempotent();
        // Pingora keeps a copy of a short body only. A longer body can't be sent again.
        let is_body_kept = !session.as_downstream().retry_buffer_truncated()
            && ctx.request_context.body.is_kept_by_pingora();
        let has_response_begun = has_final_response_started(session)
            || ctx.connection_guard.as_ref().is_none_or(ConnectionGuard::has_received_bytes);
        let failure = match classify_error(&error) {
            _ if upload_watch::is_upload_too_slow() => Failure::RequestBody(BodyFault::TooSlow),
            _ if ctx.has_guard_ended_exchange() => Failure::TimedOut,
            Failure::BrokenResponse(_) if !has_response_begun => Failure::ClosedEarly {
                is_reused: reused,
                is_repeatable: is_idempotent && is_body_kept,
            },
            failure => failure,
        };
        match self.record_failure(ctx, failure) {
            true => error.retry.decide_reuse(true),
            false => error.set_retry(false),
        }
        error
    }

    /// Looks at the framing of the body here, because Pingora has changed it before
    /// `response_filter`: a body without a length gets chunks.
    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        let framing = body_framing(session, response);
        ctx.does_response_end_with_connection = Some(framing == BodyFraming::UntilClose);
        Ok(())
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        let is_final = StatusKind::from(response.status.as_u16()) == StatusKind::Final;
        if is_final && let Some(deadline) = &mut ctx.deadline {
            deadline.restart_after_response_part();
            ctx.move_deadline_of_guard();
        }
        let framing = body_framing(session, response);
        // A wrapper may not pass `upstream_response_filter` on. Pingora has then given chunks to a
        // body without a length.
        ctx.does_response_end_with_connection.get_or_insert(framing == BodyFraming::Chunked);
        ctx.is_upstream_response_complete = is_final && framing == BodyFraming::Empty;
        ctx.end_exchange_if_complete(session, &self.gate);
        self.gate.response_filter(session, response, &mut ctx.request_context)?;
        if is_final {
            let metrics = &self.gate.state().metrics.upstream;
            ctx.attempts.end_with_response(metrics, &mut ctx.request_context.attempts);
        }
        if ctx.is_upstream_response_complete
            && let Some(unsent) = UnsentResponse::of_request(session.req_header())
        {
            unsent.track_header_alone(response);
        }
        Ok(())
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        let is_streamed =
            self.gate.pass_body_part(body, end_of_stream, &mut ctx.request_context)?;
        if is_streamed {
            upload_watch::record_part(end_of_stream);
        }
        if is_streamed
            && end_of_stream
            && let Some(deadline) = &mut ctx.deadline
        {
            deadline.start();
            ctx.move_deadline_of_guard();
        }
        if end_of_stream && ctx.is_upstream_response_complete {
            ctx.connection_guard = None;
            ctx.free_server(&self.gate);
        }
        Ok(())
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut ProxyContext,
    ) -> Result<Option<Duration>> {
        ctx.is_upstream_response_complete |= end_of_stream;
        let passed_bytes = body.as_ref().map_or(0, Bytes::len);
        ctx.passed_response_bytes += passed_bytes as u64;
        // The end of the exchange drops the guard, which knows whether it has ended the connection.
        let must_fail = ctx.must_fail_response();
        ctx.end_exchange_if_complete(session, &self.gate);
        if let (Some(body), true) = (body.as_mut(), is_injected(TestFault::AlterResponseBody)) {
            *body = vec![b'x'; body.len()].into();
        }
        if let (Some(body), Some(response)) =
            (body, UnsentResponse::of_request(session.req_header()))
        {
            let is_start = ctx.passed_response_bytes == passed_bytes as u64;
            let part = match is_start {
                true => ResponsePart::ForwardedStart { response_bytes: PINGORA_TASK_BYTES },
                false => ResponsePart::ForwardedRest,
            };
            *body = response.track(std::mem::take(body), part);
        }
        // If the deadline truncates a body, the response must not look complete.
        if must_fail {
            return Err(Error::new_up(ErrorType::ReadTimedout));
        }
        if let Some(deadline) = &mut ctx.deadline {
            deadline.restart_after_response_part();
            ctx.move_deadline_of_guard();
        }
        // A client that reads slowly must not hold its exchange permit beyond the deadline.
        if let Some(left) = ctx.deadline.and_then(|deadline| deadline.whole_time_left()) {
            let client = session.as_downstream_mut();
            let limit = client.get_write_timeout().map_or(left, |limit| limit.min(left));
            client.set_write_timeout(Some(limit));
        }
        Ok(None)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut ProxyContext,
    ) -> FailToProxy {
        ctx.connection_guard = None;
        let failure = ctx.failure.unwrap_or_else(|| classify_error(error));
        self.upstreams.log_if_broken(failure, &ctx.request_context);
        let failed = FailedExchange {
            failure,
            attempts: ctx.attempts.attempts(),
            is_past_deadline: ctx.is_past_deadline(),
            is_response_sent: matches!(failure, Failure::Client | Failure::RequestBody(_))
                && ctx.is_upstream_response_complete
                && session.body_bytes_sent() as u64 == ctx.passed_response_bytes,
        };
        self.gate.answer_failure(session, error, &mut ctx.request_context, failed).await
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut ProxyContext) {
        (ctx.connection_guard, ctx.is_logged) = (None, true);
        self.gate.logging(session, error, &mut ctx.request_context);
        ctx.wait_until_sent_or_held(session, error.is_none()).await;
        self.gate.discard_body_over_http2(session, &ctx.request_context).await;
    }

    /// riskgate logs its own errors itself, without the target, which may contain an e-mail
    /// address.
    fn suppress_error_log(&self, _session: &Session, _ctx: &ProxyContext, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &ProxyContext,
        _error: &Error,
        _context: pingora_proxy::ProxyWarnLogContext,
    ) -> bool {
        true
    }
}
