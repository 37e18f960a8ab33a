//! The fast path's exchange with an upstream server: it sends a request that passed the gates as
//! bytes, and forwards the bytes of the response.
//!
//! An exchange takes the same steps as on the Pingora path, in the same order. It receives the
//! body, charges the call and screens the form. It acquires a permit, selects a server, connects,
//! and forwards the request and the response under one deadline. If that fails, it retries or
//! refuses. Both paths call the same modules for the rules of these steps.

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::boxed::box_future;
use super::client_io::ClientIo;
use super::context::ListenerContext;
use super::fast_path::{FastPath, ProxyRequest};
use super::short_body::ShortBody;
use crate::exchange::forwarding::{ClientInfo, write_upstream_request};
use crate::exchange::{Attempts, FailedEnd, Failure, MalformedResponse, closes_after_response};
use crate::gate::{Head, ParsedBytes, RequestContext, UnchargedRoute};
use crate::message::response::Reply;
use crate::model::refusal::Refusal;
use crate::observe::metrics::AttemptRecord;
use crate::proxy::upstream::{
    AttemptTimer, BodyState, DeadlinePassed, ExchangeDeadline, ResponseContext, ResponseHead,
    UpstreamConnection, forward_response_head,
};
use crate::screening::ReceivedBody;

/// The space reserved for one read of a response header, in bytes.
const HEADER_READ_BYTES: usize = 2 * 1024;
/// The space reserved for one read of a response body, in bytes.
const BODY_READ_BYTES: usize = 16 * 1024;

/// How the client's connection continues after a request.
pub(super) enum ConnectionDisposition {
    /// The next request may follow.
    KeepAlive,
    /// The connection closes in an orderly way, after the response.
    Close,
    /// The Pingora path takes over.
    Fallback,
    /// The connection is broken and can't be closed in an orderly way.
    Broken,
}

/// The state of one exchange: a request that is being forwarded, and its attempts.
struct Exchange<'e> {
    context: &'e ListenerContext,
    fast_path: &'e mut FastPath,
    client_info: ClientInfo<'e>,
    ctx: &'e RequestContext,
    /// The client's request header, with its request line.
    client_header: ParsedBytes<'e>,
    /// The client's body; `None` if it announced none.
    body: Option<Bytes>,
    /// Whether the client's connection closes after the response.
    should_close: bool,
    attempts: Attempts,
    /// The attempt that is under way, if it asks a server.
    attempt_timer: Option<AttemptTimer>,
    /// The attempts that have ended.
    attempt_records: Vec<AttemptRecord>,
    /// Bytes to send to the client.
    client_output: Vec<u8>,
}

/// A response whose header is in the output for the client, and whose body is still to be
/// forwarded.
struct UpstreamResponse {
    head: ResponseHead,
    connection: UpstreamConnection,
    /// The bytes that arrived after the header.
    bytes_after_header: BytesMut,
}

/// Sends `pending_output`, the responses to the client's earlier requests, then forwards the
/// request and its response. The request stays in its box: a value that an async function takes is
/// copied into its future, and this future is made for each request.
pub(super) async fn proxy_request(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    fast_path: &mut FastPath,
    mut request: Box<ProxyRequest>,
    pending_output: Vec<u8>,
) -> ConnectionDisposition {
    let header = client_io.read_buf.split_to(request.header_length);
    let head = ParsedBytes(&header);
    if !client_io.send_bytes(&pending_output, context.options.write_timeout, None).await {
        request.ctx.set_aborted_outcome();
        context.gate.count_and_log_on_fast_path(&request.ctx, head);
        return ConnectionDisposition::Broken;
    }
    let admitted = match request.uncharged.take() {
        None => Ok(None),
        Some((body, route)) => {
            let ctx = &mut request.ctx;
            let admitted = box_future(|| admit_body(context, client_io, head, body, route, ctx));
            admitted.await.map(Some)
        }
    };
    let disposition = match admitted {
        Ok(body) => {
            let request = &mut request;
            exchange_with_server(context, client_io, fast_path, request, (head, body)).await
        }
        Err(answer) => send_answer(context, client_io, fast_path, &mut request, answer).await,
    };
    context.gate.count_and_log_on_fast_path(&request.ctx, head);
    disposition
}

/// Forwards a request, with its header and its body, and its response.
async fn exchange_with_server(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    fast_path: &mut FastPath,
    request: &mut ProxyRequest,
    (head, body): (ParsedBytes<'_>, Option<Bytes>),
) -> ConnectionDisposition {
    use ConnectionDisposition::{Broken, Close, KeepAlive};
    let servers = &*context.upstreams;
    // The time of the exchange does not run while the client sends.
    let since = match body {
        None => request.ctx.started_at(),
        Some(_) => std::time::Instant::now(),
    };
    let mut deadline = servers.exchange_deadline(request.ctx.time_limit(), since);
    let mut exchange = Exchange {
        context,
        fast_path: &mut *fast_path,
        client_info: context.gate.collect_client_info(&request.ctx),
        ctx: &request.ctx,
        client_header: head,
        body: body.filter(|_| request.announces_body),
        should_close: request.wants_close,
        attempts: Attempts::default(),
        attempt_timer: None,
        attempt_records: Vec::new(),
        client_output: Vec::new(),
    };
    let permit = servers.acquire_exchange_permit(request.ctx.client_address);
    let fetched = match &permit {
        Some(_) => exchange.fetch_response_head_before(&deadline).await,
        None => Err(Failure::NotStarted),
    };
    let (should_close, attempts) = (exchange.should_close, exchange.attempts);
    let out = std::mem::take(&mut exchange.client_output);
    request.ctx.attempts = std::mem::take(&mut exchange.attempt_records);
    let mut is_client_gone = false;
    let ended = match fetched {
        Ok(response) => {
            request.ctx.set_upstream_outcome(response.head.status);
            let sent = &mut request.ctx.response_bytes;
            let forwarded =
                forward_body(context, client_io, response, out, &mut deadline, sent).await;
            is_client_gone = matches!(forwarded, Err(Failure::Client));
            forwarded.map_err(|failure| attempts.end_after(failure, false, true))
        }
        Err(failure) => Err(attempts.end_after(failure, deadline.has_passed(), false)),
    };
    match ended {
        Ok(()) if should_close => Close,
        Ok(()) => KeepAlive,
        Err(FailedEnd::Abort) => {
            request.ctx.set_aborted_outcome();
            // An orderly close: the client must receive the part that has arrived.
            if is_client_gone { Broken } else { Close }
        }
        Err(FailedEnd::Refuse(refusal)) => {
            send_refusal(context, client_io, fast_path, request, &refusal).await
        }
    }
}

/// Receives the body of a request, charges the call, and screens the form. Returns an error if the
/// request is not to be forwarded: with the answer, or with `None` if the client has left.
async fn admit_body(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    head: ParsedBytes<'_>,
    body: ShortBody,
    route: UnchargedRoute,
    ctx: &mut RequestContext,
) -> Result<Bytes, Option<Reply>> {
    let (gate, upstreams) = (&context.gate, &context.upstreams);
    let mut held = upstreams.begin_held_body(ctx.client_address);
    let received = body.receive(client_io, &mut held, upstreams.body_options()).await;
    let bytes = received.map_err(|error| match error.into_refusal() {
        Ok(refusal) => Some(gate.finish_with_refusal(&refusal, ctx)),
        Err(_) => {
            ctx.set_aborted_outcome();
            None
        }
    })?;
    if let Some(reply) = gate.charge_after_body(head.target(), route, ctx).await {
        return Err(Some(reply));
    }
    match gate.screen(head, ReceivedBody::whole(&bytes), ctx) {
        Some(reply) => Err(Some(reply)),
        None => Ok(bytes),
    }
}

/// Sends the answer to a request that is not forwarded; `None` if the client has left.
async fn send_answer(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    fast_path: &mut FastPath,
    request: &mut ProxyRequest,
    answer: Option<Reply>,
) -> ConnectionDisposition {
    // The client has left before its body was complete. Over TLS, an orderly close still tells it
    // that nothing follows.
    let Some(reply) = answer else { return ConnectionDisposition::Close };
    let is_ending = context.tracker.is_draining();
    let should_close =
        reply.closes_connection() || closes_after_response(request.wants_close, is_ending);
    let mut out = Vec::with_capacity(1024);
    request.ctx.append_as_http1(&reply, fast_path.date_header_value(), should_close, &mut out);
    match client_io.send_bytes(&out, context.options.write_timeout, None).await {
        true if should_close => ConnectionDisposition::Close,
        true => ConnectionDisposition::KeepAlive,
        false => ConnectionDisposition::Broken,
    }
}

/// Sends the response to a refused request. The connection closes after it.
async fn send_refusal(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    fast_path: &mut FastPath,
    request: &mut ProxyRequest,
    refusal: &Refusal,
) -> ConnectionDisposition {
    let reply = context.gate.finish_with_refusal(refusal, &mut request.ctx);
    let mut out = Vec::with_capacity(1024);
    request.ctx.append_as_http1(&reply, fast_path.date_header_value(), true, &mut out);
    match client_io.send_bytes(&out, context.options.write_timeout, None).await {
        true => ConnectionDisposition::Close,
        false => ConnectionDisposition::Broken,
    }
}

/// Sends `out`, which starts with the response header, and forwards the body of the response to the
/// client. If the upstream connection can be reused, returns it to the pool of idle connections.
/// Adds the bytes of the body to `sent_body_bytes`.
async fn forward_body(
    context: &ListenerContext,
    client_io: &mut ClientIo,
    response: UpstreamResponse,
    mut out: Vec<u8>,
    deadline: &mut ExchangeDeadline,
    sent_body_bytes: &mut u64,
) -> Result<(), Failure> {
    let mut header_bytes = out.len();
    let UpstreamResponse {
        head: ResponseHead { mut body, is_connection_reusable: is_persistent, .. },
        mut connection,
        bytes_after_header: mut arrived,
    } = response;
    loop {
        deadline.restart_after_response_part();
        let forwarded = body.forward_arrived_bytes(&mut arrived, &mut out);
        let latest_end = deadline.whole_end().map(Instant::from_std);
        if !client_io.send_bytes(&out, context.options.write_timeout, latest_end).await {
            return Err(Failure::Client);
        }
        *sent_body_bytes += (out.len() - std::mem::take(&mut header_bytes)) as u64;
        out.clear();
        forwarded.map_err(|MalformedResponse| Failure::BrokenResponse)?;
        if body == BodyState::Complete {
            break;
        }
        match deadline.limit(connection.read(&mut arrived, BODY_READ_BYTES)).await {
            Ok(Ok(1..)) => {}
            Ok(Ok(0)) => {
                body.finish_at_eof(&mut out).map_err(|MalformedResponse| Failure::BrokenResponse)?
            }
            Ok(Err(_)) => return Err(Failure::BrokenResponse),
            Err(DeadlinePassed) => return Err(Failure::TimedOut),
        }
    }
    if is_persistent && arrived.is_empty() {
        context.upstreams.return_to_idle_pool(connection);
    }
    Ok(())
}

impl Exchange<'_> {
    async fn fetch_response_head_before(
        &mut self,
        deadline: &ExchangeDeadline,
    ) -> Result<UpstreamResponse, Failure> {
        let fetched = deadline.limit(self.fetch_response_head()).await;
        fetched.unwrap_or_else(|DeadlinePassed| {
            self.count_attempt(Some(Failure::TimedOut));
            Err(Failure::TimedOut)
        })
    }

    /// Asks servers until one has sent a complete response header, or until no further attempt is
    /// allowed. The header for the client is then in `client_output`.
    async fn fetch_response_head(&mut self) -> Result<UpstreamResponse, Failure> {
        loop {
            self.attempts.start_attempt();
            let fetched = self.ask_server().await;
            self.count_attempt(fetched.as_ref().err().copied());
            match fetched {
                // The caller enforces the deadline, so it has not passed here.
                Err(failure) if self.attempts.may_retry(failure, false) => {
                    self.context.gate.state().metrics.upstream.retries.inc()
                }
                fetched => return fetched,
            }
        }
    }

    /// Counts the attempt that is under way. It got a response if `failure` is `None`.
    fn count_attempt(&mut self, failure: Option<Failure>) {
        if let Some(timer) = self.attempt_timer.take() {
            let metrics = &self.context.gate.state().metrics.upstream;
            self.attempt_records.extend(timer.count(failure, metrics));
        }
    }

    /// Sends the request to the next server, and waits for a complete response header.
    async fn ask_server(&mut self) -> Result<UpstreamResponse, Failure> {
        let (Some(target), Some(_)) = (self.ctx.upstream_target(), &self.ctx.permit) else {
            return Err(Failure::Internal);
        };
        let server = self.context.upstreams.select_server().ok_or(Failure::NotStarted)?;
        self.attempt_timer = Some(AttemptTimer::start(server));
        let connected =
            self.context.upstreams.reuse_or_connect(server, self.attempts.is_retry()).await;
        let mut connection = connected.map_err(|_| Failure::Connect)?;
        self.attempts.mark_connected();
        self.client_info.traceparent = self.ctx.traceparent_after(self.attempt_records.len());
        let client_header = self.client_header;
        let body = self.body.as_deref().unwrap_or_default();
        let mut request = Vec::with_capacity(client_header.0.len() + body.len() + 512);
        write_upstream_request(
            client_header.0,
            (client_header.method(), target),
            self.body.as_ref().map(Bytes::len),
            self.context.upstreams.host_header(&connection.server_address),
            &self.client_info,
            &mut request,
        );
        request.extend_from_slice(body);
        let mut arrived = BytesMut::new();
        let head = self.send_and_forward_head(&request, &mut connection, &mut arrived).await?;
        Ok(UpstreamResponse { head, connection, bytes_after_header: arrived })
    }

    /// Sends the request, reads until the response header is complete, and appends the header for
    /// the client to `client_output`.
    async fn send_and_forward_head(
        &mut self,
        request: &[u8],
        connection: &mut UpstreamConnection,
        arrived: &mut BytesMut,
    ) -> Result<ResponseHead, Failure> {
        let method = http::Method::from_bytes(self.client_header.method().as_bytes());
        let is_repeatable = method.is_ok_and(|method| method.is_idempotent());
        let is_reused = connection.is_reused;
        let mut failure = Failure::ClosedEarly { is_reused, is_repeatable };
        connection.send(request).await.map_err(|_| failure)?;
        loop {
            match connection.read(arrived, HEADER_READ_BYTES).await {
                Ok(1..) => failure = Failure::BrokenResponse,
                Ok(0) | Err(_) => return Err(failure),
            }
            self.should_close =
                closes_after_response(self.should_close, self.context.tracker.is_draining());
            let context = ResponseContext {
                common_headers: &self.ctx.common_headers,
                date: self.fast_path.date_header_value(),
                should_close: self.should_close,
                is_head_method: self.client_header.method() == "HEAD",
                freedom: self.ctx.server_freedom(),
            };
            let head = forward_response_head(arrived, &context, &mut self.client_output);
            if let Some(head) = head.map_err(|MalformedResponse| Failure::BrokenResponse)? {
                return Ok(head);
            }
        }
    }
}
