//! The lane's way through to the servers: a request that passed the gates is sent to one, and the
//! answer comes back, from bytes to bytes.
//!
//! It does what the gateway does, in the same order: a place, a server, a connection, the same words
//! in both directions, one end for all of it, a second try, a refusal. What they mean stands in the
//! rooms that both call.

use bytes::BytesMut;
use pingora_core::protocols::Ssl;
use tokio::time::{Instant, timeout_at};

use super::client_io::ClientIo;
use super::connection_tracker::ConnectionTracker;
use super::context::{ConnectionContext, ExchangeUpstreams};
use super::fast_path::{FastPath, ProxyRequest};
use crate::gate::RequestContext;
use crate::message::forwarding::ClientInfo;
use crate::message::response::RenderOptions;
use crate::model::refusal::Refusal;
use crate::proxy::upstream::{
    Attempts, BodyState, Failure, MalformedResponse, ResponseContext, ResponseHead,
    UpstreamConnection, forward_head,
};

/// Room for what arrives of a header in one go, in bytes.
const HEADER_READ_BYTES: usize = 4 * 1024;
/// The same for a body.
const BODY_READ_BYTES: usize = 16 * 1024;

/// How the client's connection goes on.
pub(super) enum Disposition {
    KeepAlive,
    Close,
    /// On the Pingora path.
    Fallback,
    /// It is of no use to anybody.
    Broken,
}

/// A request on its way, and what came of it so far.
struct Exchange<'e, 's> {
    servers: &'e ExchangeUpstreams,
    fast_path: &'e mut FastPath<&'s ExchangeUpstreams>,
    caller: ClientInfo<'e>,
    visit: &'e RequestContext,
    header: &'e [u8],
    method: &'static str,
    traffic: &'e ConnectionTracker,
    /// The client's connection closes behind the answer.
    closes: bool,
    tries: Attempts,
    /// What the client is to be sent.
    out: Vec<u8>,
}

/// An answer that has begun.
struct UpstreamResponse {
    head: ResponseHead,
    connection: UpstreamConnection,
    /// What has arrived behind its header.
    arrived: BytesMut,
}

/// An answer that has begun is not passed on to its end.
struct Truncated;

/// Passes a request on, and its answer back, behind the answers that stand before it.
pub(super) async fn proxy_request(
    context: &ConnectionContext,
    servers: &ExchangeUpstreams,
    client_io: &mut ClientIo,
    fast_path: &mut FastPath<&ExchangeUpstreams>,
    request: ProxyRequest,
    pending_output: &[u8],
) -> Disposition {
    let write_timeout = context.options.write_timeout;
    let header = client_io.read_buf.split_to(request.header_length);
    let ProxyRequest { visit: mut ctx, method, target, closes, .. } = request;
    if !client_io.send_bytes(pending_output, write_timeout, None).await {
        ctx.mark_aborted();
        fast_path.record_request(&ctx, method, &target);
        return Disposition::Broken;
    }
    let address = client_io.client_address();
    let secure = client_io.get_ssl_digest().is_some();
    let end = Instant::from_std(servers.upstreams.exchange_deadline(ctx.started()));
    let mut exchange = Exchange {
        servers,
        fast_path: &mut *fast_path,
        caller: context.gate.client_info(&ctx, address, secure),
        visit: &ctx,
        header: &header,
        method,
        traffic: &context.traffic,
        closes,
        tries: Attempts::default(),
        out: Vec::with_capacity(1024),
    };
    let place = servers.upstreams.acquire_exchange(address);
    let begun = match &place {
        Some(_) => timeout_at(end, exchange.start_response()).await,
        // Too many are under way.
        None => Ok(Err(exchange.tries.refusal(false))),
    };
    let begun = begun.unwrap_or_else(|_| Err(exchange.tries.refusal(true)));
    let (closes, mut out) = (exchange.closes, std::mem::take(&mut exchange.out));
    let disposition = match begun {
        Ok(begun) => {
            ctx.set_upstream_outcome(begun.head.status);
            match forward_body(context, servers, client_io, begun, out, end).await {
                Ok(()) if closes => Disposition::Close,
                Ok(()) => Disposition::KeepAlive,
                Err(Truncated) => {
                    ctx.mark_aborted();
                    Disposition::Broken
                }
            }
        }
        Err(refusal) => {
            let reply = context.gate.reply_to_refusal(&refusal, &mut ctx);
            // As on the Pingora path it closes behind a failed exchange.
            let options = RenderOptions { should_close: true, is_head_method: method == "HEAD" };
            out.clear();
            reply.render(&ctx.common_headers, fast_path.date(), options, &mut out);
            if client_io.send_bytes(&out, write_timeout, None).await {
                Disposition::Close
            } else {
                Disposition::Broken
            }
        }
    };
    fast_path.record_request(&ctx, method, &target);
    disposition
}

/// Passes back what the header left, and all that follows it.
async fn forward_body(
    context: &ConnectionContext,
    servers: &ExchangeUpstreams,
    client_io: &mut ClientIo,
    begun: UpstreamResponse,
    mut out: Vec<u8>,
    end: Instant,
) -> Result<(), Truncated> {
    let UpstreamResponse {
        head: ResponseHead { mut body, is_persistent: stays, .. },
        mut connection,
        mut arrived,
    } = begun;
    loop {
        let passed = body.forward(&mut arrived, &mut out);
        if !client_io.send_bytes(&out, context.options.write_timeout, Some(end)).await {
            return Err(Truncated);
        }
        out.clear();
        passed.map_err(|MalformedResponse| Truncated)?;
        if body == BodyState::Complete {
            break;
        }
        match timeout_at(end, connection.read(&mut arrived, BODY_READ_BYTES)).await {
            Ok(Ok(1..)) => {}
            Ok(Ok(0)) => body.finish_at_eof(&mut out).map_err(|MalformedResponse| Truncated)?,
            // What was cut, by the deadline too, must not look complete.
            Ok(Err(_)) | Err(_) => return Err(Truncated),
        }
    }
    if stays && arrived.is_empty() {
        servers.upstreams.keep_idle(connection);
    }
    Ok(())
}

impl Exchange<'_, '_> {
    /// Asks a server, and another one if need be, until an answer begins; its header is in `out`.
    async fn start_response(&mut self) -> Result<UpstreamResponse, Refusal> {
        let upstreams = &self.servers.upstreams;
        let (Some(target), Some(_)) = (self.visit.forward(), &self.visit.permit) else {
            return Err(Refusal::Internal);
        };
        loop {
            self.tries.start_attempt();
            let server = upstreams.select_server().ok_or(self.tries.refusal(false))?;
            let failure = match upstreams.connect(server, self.tries.is_retry()).await {
                Ok(mut connection) => {
                    self.tries.mark_connected();
                    let mut arrived = BytesMut::new();
                    let mut request = Vec::with_capacity(self.header.len() + 512);
                    let request_line = (self.method, target);
                    upstreams.write_request(
                        self.header,
                        request_line,
                        server,
                        &self.caller,
                        &mut request,
                    );
                    match self.send_and_read_head(&request, &mut connection, &mut arrived).await {
                        Ok(answer) => {
                            return Ok(UpstreamResponse { head: answer, connection, arrived });
                        }
                        Err(failure) => failure,
                    }
                }
                Err(_) => {
                    upstreams.eject_server(&server.into());
                    Failure::Connect
                }
            };
            // Who is late is not here any more.
            if !self.tries.may_retry(failure, false) {
                return Err(self.tries.refusal(false));
            }
        }
    }

    /// Sends the request, and reads until there is a header.
    async fn send_and_read_head(
        &mut self,
        request: &[u8],
        connection: &mut UpstreamConnection,
        arrived: &mut BytesMut,
    ) -> Result<ResponseHead, Failure> {
        let is_reused = connection.is_reused;
        let mut failure = Failure::ClosedEarly { is_reused, is_retryable: true };
        connection.send(request).await.map_err(|_| failure)?;
        loop {
            match connection.read(arrived, HEADER_READ_BYTES).await {
                Ok(1..) => failure = Failure::ResponseStarted,
                Ok(0) | Err(_) => return Err(failure),
            }
            self.closes |= self.traffic.is_draining();
            let context = ResponseContext {
                common: &self.visit.common_headers,
                date: self.fast_path.date(),
                closes: self.closes,
                is_head: self.method == "HEAD",
            };
            let passed = forward_head(arrived, &context, &mut self.out);
            if let Some(answer) = passed.map_err(|MalformedResponse| Failure::ResponseStarted)? {
                return Ok(answer);
            }
        }
    }
}
