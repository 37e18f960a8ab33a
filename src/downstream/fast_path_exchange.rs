//! The fast path's exchange with an upstream server: riskgate sends a request that passed the
//! gates, and forwards the response. The client speaks HTTP/1.1 or HTTP/2.

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::client_close_watch::UNWATCHED_WAIT;
use super::context::ListenerContext;
use super::exchange_client::ExchangeClient;
use super::forwarded_response::{ForwardedResponse, UpstreamResponse};
use crate::exchange::forwarding::{ClientInfo, write_upstream_request};
use crate::exchange::{
    FailedEnd, Failure, InformationalResponseCounter, MalformedResponse, closes_after_response,
};
use crate::gate::{AttemptRecords, Head, RequestContext, UnchargedRoute};
use crate::message::response::Reply;
use crate::proxy::request_body::HoldError;
use crate::proxy::upstream::{
    ClientResponseHeader, CountedAttempts, ExchangeDeadline, ResponseContext, ResponseHead,
    UpstreamConnection, forward_response_head, wait_at_most_until,
};
use crate::screening::ReceivedBody;

/// The space reserved for one read of a response header, in bytes.
const RESPONSE_HEADER_READ_BYTES: usize = 2 * 1024;

/// How long riskgate waits for the answer to a sign-up whose client has left, so that such clients
/// hold no place of their network for ever if a route has no deadline.
const WAIT_WITHOUT_CLIENT: Duration = Duration::from_secs(30);

/// How an exchange ended for the client.
pub(super) enum ExchangeEnd {
    /// riskgate has passed on the whole response of the server, or has sent an answer of its own.
    Answered {
        /// Whether a connection of HTTP/1.1 closes after the response.
        should_close: bool,
    },
    /// The client has no response, or a part of one, which must not look complete.
    Aborted {
        /// Whether the client has left, or does not read.
        is_client_gone: bool,
    },
}

/// A request to forward.
pub(super) struct RequestToForward<H> {
    pub head: H,
    /// The client's body; `None` if it announced none.
    pub body: Option<Bytes>,
    /// Whether the client wants its connection to close after the response.
    pub wants_close: bool,
}

/// The state of one exchange until the server answers: the request and its attempts. `R` is the
/// type of the header that riskgate writes for the client.
struct Exchange<'e, H, R> {
    context: &'e ListenerContext,
    client_info: ClientInfo<'e>,
    ctx: &'e RequestContext,
    request: &'e RequestToForward<H>,
    attempts: CountedAttempts,
    ended_attempts: AttemptRecords,
    response_header: R,
}

/// Charges the call for a request whose body was received, and screens the form. Returns an error
/// if the request is not to be forwarded: riskgate's answer, or `None` if the client has left.
pub(super) async fn charge_and_screen<'h>(
    context: &ListenerContext,
    head: impl Head<'h>,
    received: Result<Bytes, HoldError>,
    route: UnchargedRoute,
    ctx: &mut RequestContext,
) -> Result<Bytes, Option<Reply>> {
    let gate = &context.gate;
    let bytes = received.map_err(|error| match error.into_refusal() {
        Ok(refusal) => Some(gate.finish_with_refusal(&refusal, ctx).with_connection_close()),
        Err(_) => {
            ctx.set_aborted_outcome();
            None
        }
    })?;
    if let Some(reply) = gate.charge_after_body(head.target(), route, ctx).await {
        return Err(Some(reply));
    }
    match gate.screen(head, ReceivedBody::of_whole_body(&bytes), ctx) {
        Some(reply) => Err(Some(reply)),
        None => Ok(bytes),
    }
}

/// Forwards a request to an upstream server, and the server's response to the client. If no
/// response can be forwarded, sends an answer of riskgate, unless the client has left.
pub(super) async fn exchange_with_server<'h, C: ExchangeClient, H: Head<'h> + Send + Sync>(
    context: &ListenerContext,
    client: &mut C,
    request: &RequestToForward<H>,
    ctx: &mut RequestContext,
) -> ExchangeEnd {
    ctx.has_attempt_records = true;
    let servers = &*context.upstreams;
    let since = ctx.exchange_start(request.body.is_some());
    let mut deadline = servers.exchange_deadline(ctx.time_limit, Some(since));
    let mut exchange = Exchange {
        context,
        client_info: context.gate.collect_client_info(ctx),
        ctx,
        request,
        attempts: CountedAttempts::default(),
        ended_attempts: AttemptRecords::new(),
        response_header: client.begin_header(),
    };
    let permit = servers.acquire_exchange_permit(ctx.client_address);
    let fetched = match &permit {
        Some(_) => exchange.fetch_response_head_before(&deadline, client).await,
        None => Err(Failure::NotStarted),
    };
    let Exchange { attempts, ended_attempts, response_header, .. } = exchange;
    ctx.attempts = ended_attempts;
    let should_close =
        closes_after_response(None, request.wants_close, context.tracker.is_draining());
    let (failure, has_response_started) = match fetched {
        Ok(response) => {
            context.gate.record_upstream_status(response.head.status, response.head.is_html, ctx);
            client.set_response_header(response_header, should_close);
            let response = ForwardedResponse::new(context, response, permit);
            match response.forward_to(client, &mut deadline, ctx).await {
                Ok(()) => return ExchangeEnd::Answered { should_close },
                Err(failure) => (failure, true),
            }
        }
        Err(failure) => (failure, false),
    };
    servers.log_if_broken(failure, ctx);
    let is_past_deadline = !has_response_started && deadline.has_passed();
    match attempts.attempts().end_after(failure, is_past_deadline, has_response_started) {
        FailedEnd::Abort => {
            ctx.set_aborted_outcome();
            ExchangeEnd::Aborted { is_client_gone: failure == Failure::Client }
        }
        FailedEnd::Refuse(refusal) => {
            let reply = context.gate.finish_with_refusal(&refusal, ctx);
            send_reply(client, &reply, true, ctx).await
        }
    }
}

/// Sends a response of riskgate. If `should_close`, a connection of HTTP/1.1 closes after the
/// response.
pub(super) async fn send_reply<C: ExchangeClient>(
    client: &mut C,
    reply: &Reply,
    should_close: bool,
    ctx: &mut RequestContext,
) -> ExchangeEnd {
    if client.send_reply(reply, should_close, ctx).await {
        return ExchangeEnd::Answered { should_close };
    }
    ctx.record_unsent_reply();
    ExchangeEnd::Aborted { is_client_gone: true }
}

impl<'h, H: Head<'h>, R: ClientResponseHeader> Exchange<'_, H, R> {
    /// Like [`Exchange::fetch_response_head`], but gives up once the deadline has passed or the
    /// client has left. If a sign-up counts by the answer of the server, riskgate waits for this
    /// answer without the client, for [`WAIT_WITHOUT_CLIENT`] at most. Otherwise a client could
    /// leave early, and never be counted.
    async fn fetch_response_head_before(
        &mut self,
        deadline: &ExchangeDeadline,
        client: &mut impl ExchangeClient,
    ) -> Result<UpstreamResponse, Failure> {
        let has_sign_ups = self.ctx.has_sign_ups();
        let failure = {
            let mut fetching = pin!(self.fetch_response_head());
            let (mut watches_client, mut gone_until) = (false, None);
            loop {
                // While a client of HTTP/1.1 is not watched, one timer runs: a second timer would
                // cost as much as a look-up.
                let limit = match (gone_until, watches_client) {
                    (Some(until), _) => {
                        Some(deadline.passes_at().map_or(until, |it| it.min(until)))
                    }
                    (None, true) => deadline.passes_at(),
                    (None, false) => deadline.at_latest_after(UNWATCHED_WAIT),
                };
                let fetched = tokio::select! {
                    biased;
                    () = client.wait_until_gone(watches_client), if gone_until.is_none() => {
                        if !has_sign_ups {
                            break Failure::Client;
                        }
                        gone_until = Some(Instant::now() + WAIT_WITHOUT_CLIENT);
                        client.go_on_without_client();
                        continue;
                    }
                    fetched = wait_at_most_until(limit, fetching.as_mut()) => fetched,
                };
                match fetched {
                    Some(fetched) => return fetched,
                    None if deadline.has_passed() => break Failure::TimedOut,
                    None if gone_until.is_some() => break Failure::Client,
                    None => watches_client = true,
                }
            }
        };
        self.end_with_failure(failure, true);
        Err(failure)
    }

    /// Asks servers until one has sent a complete response header, or until no further attempt is
    /// allowed. Writes the header for the client to `response_header`.
    async fn fetch_response_head(&mut self) -> Result<UpstreamResponse, Failure> {
        loop {
            self.attempts.start_attempt();
            match self.ask_server().await {
                Ok(response) => {
                    let metrics = &self.context.gate.state().metrics.upstream;
                    self.attempts.end_with_response(metrics, &mut self.ended_attempts);
                    return Ok(response);
                }
                // The caller enforces the deadline, so it has not passed here.
                Err(failure) if self.end_with_failure(failure, false) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    fn end_with_failure(&mut self, failure: Failure, is_past_deadline: bool) -> bool {
        let metrics = &self.context.gate.state().metrics.upstream;
        let ended = &mut self.ended_attempts;
        self.attempts.end_with_failure(failure, is_past_deadline, metrics, ended)
    }

    /// Sends the request to the next server, and waits for a complete response header.
    async fn ask_server(&mut self) -> Result<UpstreamResponse, Failure> {
        let (Some(target), Some(_)) = (self.ctx.upstream_target(), &self.ctx.permit) else {
            return Err(Failure::Internal);
        };
        let server = self.context.upstreams.select_server().ok_or(Failure::NotStarted)?;
        self.attempts.mark_asked(server);
        let connected =
            self.context.upstreams.reuse_or_connect(server, self.attempts.is_retry()).await;
        let mut connection = connected.map_err(|_| Failure::Connect)?;
        self.attempts.mark_connected();
        self.client_info.traceparent = self.ctx.traceparent_after(self.ended_attempts.len());
        let RequestToForward { head, body, .. } = self.request;
        write_upstream_request(
            head.iter(),
            (head.method(), target),
            body.as_ref().map(Bytes::len),
            self.context.upstreams.host_header(&connection.server_address),
            &self.client_info,
            &mut connection.request_buffer,
        );
        connection.request_buffer.extend_from_slice(body.as_deref().unwrap_or_default());
        let head = self.send_and_forward_head(&mut connection).await?;
        Ok(UpstreamResponse { head, connection })
    }

    /// Sends the request, reads until the response header is complete, and writes the header for
    /// the client to `response_header`.
    async fn send_and_forward_head(
        &mut self,
        connection: &mut UpstreamConnection,
    ) -> Result<ResponseHead, Failure> {
        let method = self.request.head.method();
        let is_repeatable =
            http::Method::from_bytes(method.as_bytes()).is_ok_and(|method| method.is_idempotent());
        let is_reused = connection.is_reused;
        let mut failure = Failure::ClosedEarly { is_reused, is_repeatable };
        let mut has_new_bytes =
            connection.send_request(RESPONSE_HEADER_READ_BYTES).await.map_err(|_| failure)?;
        let mut informational = InformationalResponseCounter::default();
        loop {
            if !has_new_bytes {
                match connection.read(RESPONSE_HEADER_READ_BYTES).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => return Err(failure),
                }
            }
            has_new_bytes = false;
            failure = Failure::BrokenResponse(MalformedResponse::Incomplete);
            let context = ResponseContext {
                common_headers: &self.ctx.common_headers,
                is_head_method: method == "HEAD",
                allowed_fields: self.ctx.allowed_response_fields(),
            };
            let (arrived, header) = (&mut connection.arrived, &mut self.response_header);
            let head = forward_response_head(arrived, &context, &mut informational, header);
            if let Some(head) = head.map_err(Failure::BrokenResponse)? {
                return Ok(head);
            }
        }
    }
}
