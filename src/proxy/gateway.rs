//! The whole proxy: the table of contents of a request.
//!
//! `request_filter` judges and answers, `upstream_peer` chooses a server, the other filters say
//! what crosses in each direction, `fail_to_proxy` turns what went wrong into an answer, and
//! `logging` counts it. What each step means stands in the room that it calls.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use pingora_core::Result;
use pingora_core::modules::http::HttpModules;
use pingora_core::protocols::Digest;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_error::{Error, ErrorType};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, Session};
use std::time::Duration;

use crate::gate::{Gate, RequestContext, client_address, has_response_started};
use crate::model::refusal::Refusal;
use crate::proxy::request_body;
use crate::proxy::upstream::{Attempts, DeadlineGuard, ExchangePermit, Failure, Upstreams};

/// Of what an exchange has left of its time, as much is waited for a client that waits for a 100: 1.5
/// of 2.5 seconds, since many of them wait for one.
const BODY_START_FRACTION: f32 = 0.6;

/// riskgate as a proxy of its own: a [`Gate`] with an upstream behind it.
pub struct Gateway {
    gate: Gate,
    upstreams: Arc<Upstreams>,
}

/// One request on its way through the gateway.
#[derive(Default)]
pub struct ProxyContext {
    visit: RequestContext,
    attempts: Attempts,
    server_address: String,
    deadline: Option<DeadlineGuard>,
    /// All of the server's answer has come.
    is_response_complete: bool,
    /// Its place among the exchanges under way.
    exchange_permit: Option<ExchangePermit>,
}

impl Gateway {
    /// A gateway of this gate and these servers.
    pub fn new(gate: Gate, upstreams: Arc<Upstreams>) -> Gateway {
        Gateway { gate, upstreams }
    }

    fn is_past_deadline(&self, ctx: &ProxyContext) -> bool {
        self.upstreams.is_past_deadline(ctx.visit.started())
    }

    /// Answers a client that waits for a 100 in vain: it may ask again without.
    async fn refuse_expectation(
        &self,
        session: &mut Session,
        ctx: &mut ProxyContext,
    ) -> Result<bool> {
        self.gate.refund(&mut ctx.visit);
        let reply = self.gate.reply_to_refusal(&Refusal::ExpectationFailed, &mut ctx.visit);
        reply.write(session, &ctx.visit.common_headers).await?;
        Ok(true)
    }
}

impl ProxyContext {
    /// Drops the deadline if the exchange is over. Pingora gives the server's connection to the next
    /// request before it calls `logging`, and that one must not be cut by this one's deadline.
    fn cancel_deadline_if_complete(&mut self, session: &mut Session) {
        if self.is_response_complete && session.as_downstream_mut().is_body_done() {
            self.deadline = None;
        }
    }
}

/// Whether a body follows this header of a server's answer (RFC 9112 section 6.3).
fn may_have_body(session: &Session, response: &ResponseHeader) -> bool {
    let length = response.headers.get(CONTENT_LENGTH);
    session.req_header().method != http::Method::HEAD
        && !matches!(response.status.as_u16(), 204 | 304)
        && length.is_none_or(|length| length != "0")
}

/// Whether a part of a response's header had come: Pingora tells it in words alone.
fn has_read_response_bytes(error: &Error) -> bool {
    let said = error.context.as_ref().map(|context| context.as_str());
    let read = said.and_then(|said| said.rsplit_once("bytes already read: "));
    read.is_some_and(|(_, read)| read != "0")
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = ProxyContext;

    fn new_ctx(&self) -> ProxyContext {
        ProxyContext::default()
    }

    /// None: every module costs each request something, and we need none.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, ctx: &mut ProxyContext) -> Result<bool> {
        let is_answered = self.gate.run_gates(session, &mut ctx.visit).await?;
        if !is_answered {
            // Who sends a body has as long as the exchange.
            let left = self.upstreams.time_left(ctx.visit.started()).unwrap_or_default();
            let (address, upstreams) = (client_address(session), &self.upstreams);
            let client = session.as_downstream_mut();
            client.set_read_timeout(Some(left));
            let body_start_timeout = left.mul_f32(BODY_START_FRACTION);
            if request_body::remove_expectation(client)
                && !request_body::wait_for_body_start(
                    client,
                    address,
                    upstreams,
                    body_start_timeout,
                )
                .await?
            {
                return self.refuse_expectation(session, ctx).await;
            }
            let left = self.upstreams.time_left(ctx.visit.started()).unwrap_or_default();
            request_body::buffer_short_body(client, address, upstreams, left).await?;
        }
        Ok(is_answered)
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut ProxyContext,
    ) -> Result<Box<HttpPeer>> {
        if ctx.visit.permit.is_none() {
            return Error::e_explain(ErrorType::InternalError, "no permit");
        }
        if ctx.exchange_permit.is_none() {
            let full = || Error::explain(ErrorType::ConnectError, "too many exchanges").into_up();
            ctx.exchange_permit =
                Some(self.upstreams.acquire_exchange(client_address(session)).ok_or_else(full)?);
        }
        ctx.attempts.start_attempt();
        let peer = self.upstreams.select_peer(ctx.visit.started(), ctx.attempts.is_retry());
        let peer = peer.ok_or_else(|| Error::new_up(ErrorType::ConnectTimedout))?;
        ctx.server_address = peer._address.to_string();
        Ok(Box::new(peer))
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        peer: &HttpPeer,
        ctx: &mut ProxyContext,
        mut error: Box<Error>,
    ) -> Box<Error> {
        self.upstreams.eject_server(&peer._address);
        error.set_retry(ctx.attempts.may_retry(Failure::Connect, self.is_past_deadline(ctx)));
        error
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        _reused: bool,
        _peer: &HttpPeer,
        connection: std::os::unix::io::RawFd,
        _digest: Option<&Digest>,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        ctx.attempts.mark_connected();
        ctx.is_response_complete = false;
        ctx.deadline = self.upstreams.start_deadline(ctx.visit.started(), connection);
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        let host = self.upstreams.host_header(&ctx.server_address);
        self.gate.upstream_request_filter(session, request, &ctx.visit, host)
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut ProxyContext,
        reused: bool,
    ) -> Box<Error> {
        let idempotent = session.req_header().method.is_idempotent();
        let begun = has_response_started(session) || has_read_response_bytes(&error);
        // Of a long body the beginning is not kept.
        let is_kept = !session.as_downstream().retry_buffer_truncated();
        let failure = match begun {
            true => Failure::ResponseStarted,
            false => {
                Failure::ClosedEarly { is_reused: reused, is_retryable: idempotent && is_kept }
            }
        };
        match ctx.attempts.may_retry(failure, self.is_past_deadline(ctx)) {
            true => error.retry.decide_reuse(true),
            false => error.set_retry(false),
        }
        error
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        let is_final = !response.status.is_informational();
        ctx.is_response_complete = is_final && !may_have_body(session, response);
        ctx.cancel_deadline_if_complete(session);
        self.gate.response_filter(session, response, &mut ctx.visit)
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        _body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        if end_of_stream && ctx.is_response_complete {
            ctx.deadline = None;
        }
        Ok(())
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        _body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut ProxyContext,
    ) -> Result<Option<Duration>> {
        ctx.is_response_complete |= end_of_stream;
        ctx.cancel_deadline_if_complete(session);
        // What the deadline cut must not look complete.
        let left = self.upstreams.time_left(ctx.visit.started());
        let left = left.ok_or_else(|| Error::new_up(ErrorType::ReadTimedout))?;
        // Who reads too slowly must not keep an exchange from others until then.
        let client = session.as_downstream_mut();
        client.set_write_timeout(client.get_write_timeout().map(|most| most.min(left)));
        Ok(None)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut ProxyContext,
    ) -> FailToProxy {
        ctx.deadline = None;
        let timed_out = matches!(
            error.etype(),
            ErrorType::ReadTimedout | ErrorType::WriteTimedout | ErrorType::ConnectTimedout
        );
        let upstream_refusal = ctx.attempts.refusal(timed_out || self.is_past_deadline(ctx));
        // Who was too slow is still there, and hears it.
        let is_slow = timed_out && self.is_past_deadline(ctx);
        self.gate.answer_failure(session, error, &mut ctx.visit, &upstream_refusal, is_slow).await
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut ProxyContext) {
        (ctx.deadline, ctx.exchange_permit) = (None, None);
        self.gate.logging(session, error, &mut ctx.visit);
        if session.is_http2() && session.response_written().is_some() {
            request_body::discard_body(session.as_downstream_mut()).await;
        }
    }

    /// Our own log says it, without the target, which may hold an address.
    fn suppress_error_log(
        &self,
        _session: &Session,
        _passage: &ProxyContext,
        _error: &Error,
    ) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _passage: &ProxyContext,
        _error: &Error,
        _context: pingora_proxy::ProxyWarnLogContext,
    ) -> bool {
        true
    }
}
