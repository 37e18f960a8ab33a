//! HTTP/2 on a connection: its limits, its requests and its end.
//!
//! The h2 crate handles the frames. It closes the connection of a client that sends too many
//! CONTINUATION frames, small DATA frames or resets. `client_io` limits all kinds of frames. Each
//! request must satisfy the same grammar and limits as over HTTP/1.1.

mod active_requests;
mod connection_memory;
mod fast_path;
mod final_close;
mod stream_client;

use std::future::{Future, poll_fn};
use std::os::fd::RawFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arrayvec::ArrayVec;
use bytes::Bytes;
use pingora::apps::HttpServerApp;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{
    H2Accept, H2Options, HttpSession, default_h2_options, handshake,
};
use pingora::protocols::{
    Digest, GetProxyDigest, GetSocketDigest, GetTimingDigest, Ssl, Stream, UniqueID,
};
use pingora::server::ShutdownWatch;
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::time::{Instant, timeout};

use active_requests::{ActiveRequestCounter, ActiveRequestGuard, IdleOutcome};
use connection_memory::{ConnectionMemory, EndReason, HeaderLimits};
use fast_path::{may_be_long, serve_or_return};
use final_close::FinalClose;

use super::boxed::box_future;
use super::client_io::{ClientIo, FrameMeter};
use super::context::ListenerContext;
use super::idle_wait::finish_unless_shutdown;
use super::options::DownstreamOptions;
use crate::gate::{
    ConnectionFacts, FAST_PATH_TASK_BYTES, Gate, LoggedHead, UnsentResponse, discard_rest_of_body,
    waiting_request_bytes,
};
use crate::message::request_head::{
    DIVIDED_COOKIES_OVERHEAD_BYTES, check_http2_request, join_cookie_fields,
};
use crate::model::refusal::Refusal;
use crate::proxy::request_body;
use crate::proxy::upload_watch::serve_watched;

/// The bytes of bodies that a client may send on one connection before riskgate takes them. One
/// stream may have 64 KiB of them (RFC 9113 section 6.9.2): so a server that takes nothing of an
/// upload leaves the window open for the other requests on the connection. The permits for
/// exchanges limit the number of such uploads, and a reply that waits counts the body before it.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// The most bytes of frames with little data that the h2 crate keeps: half of the first window of a
/// connection, which is the h2 crate's choice for such a window.
const SHORT_DATA_BUDGET_BYTES: usize = 32_767;
/// The most bytes that one stream buffers for a client that doesn't read.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// The most streams that a client may reset before riskgate has accepted them.
const MAX_RESET_STREAMS: usize = 20;
/// The most streams in the life of a connection that the h2 crate resets because of errors of the
/// client, such as a target that is no URI. After more, it closes the connection, with the requests
/// that are active. A proxy may send the requests of many clients on one connection.
const MAX_STREAM_ERRORS: usize = 1024;
/// The most streams that riskgate remembers after it has reset them. It ignores late frames of
/// remembered streams; without the memory, such a frame would be an error.
const MAX_REMEMBERED_RESETS: usize = 1024;
/// For how long riskgate remembers a stream that it has reset.
const RESET_MEMORY_TIME: Duration = Duration::from_secs(10);
/// The most requests on one connection that Pingora finds malformed before riskgate sees them.
/// After more such requests, riskgate sends GOAWAY and finishes the active requests. After twice as
/// many, it closes the connection.
const MAX_MALFORMED_REQUESTS: usize = 32;
/// The most requests that riskgate accepts before it answers the first of them.
const MAX_BATCHED_REQUESTS: usize = 32;
/// How long riskgate keeps the connection after GOAWAY once no request is active, so that the
/// client can receive GOAWAY and close. If the client has exceeded a limit, the time counts from
/// GOAWAY on, even if requests are active.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// How many bytes longer headers may be for the h2 crate than for riskgate.
const EXCESS_HEADER_BYTES: usize = 64 * 1024;

/// The h2 crate's connection.
type H2Conn = h2::server::Connection<Stream, Bytes>;

fn build_h2_options(app: &DownstreamOptions) -> H2Options {
    let mut options = default_h2_options();
    options
        .max_concurrent_streams(app.max_streams)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .data_frame_budget(SHORT_DATA_BUDGET_BYTES)
        .max_header_list_size(u32::try_from(header_limits(app).list_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_concurrent_reset_streams(MAX_REMEMBERED_RESETS)
        .reset_stream_duration(RESET_MEMORY_TIME)
        .max_local_error_reset_streams(Some(MAX_STREAM_ERRORS));
    options
}

/// Returns what a client may send as one header. The h2 crate refuses longer headers without a log
/// line, and without the fields of riskgate's responses. So it accepts far more than riskgate,
/// which then refuses the request itself.
fn header_limits(app: &DownstreamOptions) -> HeaderLimits {
    let header_bytes = app.request_limits.header_bytes + DIVIDED_COOKIES_OVERHEAD_BYTES;
    HeaderLimits { list_bytes: header_bytes + EXCESS_HEADER_BYTES, timeout: app.header_timeout }
}

fn digest_of(client_io: &ClientIo) -> Digest {
    Digest {
        ssl_digest: client_io.get_ssl_digest(),
        timing_digest: client_io.get_timing_digest(),
        proxy_digest: client_io.get_proxy_digest(),
        socket_digest: client_io.get_socket_digest(),
    }
}

/// Receives the preface of the client. `None` if the client sends none in time, or if the process
/// ends before that.
async fn shake_hands(
    context: &ListenerContext,
    stream: Stream,
    shutdown: &ShutdownWatch,
) -> Option<H2Conn> {
    let handshake = handshake(stream, Some(build_h2_options(&context.options)));
    let handshake = timeout(context.options.header_timeout, handshake);
    finish_unless_shutdown(shutdown, &context.tracker, handshake).await?.ok()?.ok()
}

/// Serves requests until the connection ends.
pub(super) async fn serve_http2<P>(
    proxy: &Arc<HttpProxy<P>>,
    context: &Arc<ListenerContext>,
    mut client_io: ClientIo,
    shutdown: &ShutdownWatch,
) where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    let frame_meter = client_io.start_frame_meter();
    let send_progress = client_io.start_send_progress();
    let (digest, socket) = (Arc::new(digest_of(&client_io)), client_io.id());
    let stream: Stream = Box::new(client_io);
    let facts = ConnectionFacts::from(&*digest);
    let Some(mut h2_conn) = shake_hands(context, stream, shutdown).await else { return };
    let active_requests = ActiveRequestCounter::new(send_progress, context.options.write_timeout);
    let (limits, unsent) = (header_limits(&context.options), &active_requests.unsent);
    let mut memory = ConnectionMemory::new(&context.gate, &facts, unsent, &frame_meter, limits);
    let mut connection = Http2Connection {
        proxy,
        context,
        shutdown,
        digest: &digest,
        facts: &facts,
        frame_meter: &frame_meter,
        active_requests: &active_requests,
        is_closing: false,
        has_had_request: false,
        new_idle_timeout: None,
        malformed_count: 0,
    };
    // Each of these waits lasts through many requests: a new wait for each request would be slow.
    let mut drain = pin!(context.tracker.wait_until_drain_starts());
    let mut many_replies = pin!(unsent.wait_for_many_replies());
    // The first request must arrive within the header timeout; other frames don't extend it.
    let header_timeout = context.options.header_timeout;
    let mut idle = pin!(active_requests.wait_until_idle_for(header_timeout, Instant::now()));
    loop {
        let decision = tokio::select! {
            biased;
            () = &mut drain, if !connection.is_closing => {
                connection.begin_graceful_close(&mut h2_conn);
                LoopDecision::Continue
            }
            accepted = HttpSession::from_h2_conn(&mut h2_conn, Arc::clone(&digest)) => {
                connection.on_accepted(accepted, &mut h2_conn).await
            }
            () = &mut many_replies => {
                many_replies.set(unsent.wait_for_many_replies());
                LoopDecision::Continue
            }
            // The arms above wake the task when there is more to count.
            reason = poll_fn(|task| memory.poll_end_reason(task)) => {
                connection.on_end_reason(reason, &mut h2_conn).await
            }
            outcome = &mut idle => connection.on_idle_outcome(outcome, &mut h2_conn),
        };
        if matches!(decision, LoopDecision::End) {
            break;
        }
        if let Some(time) = connection.new_idle_timeout.take() {
            idle.set(active_requests.wait_until_idle_for(time, Instant::now()));
        }
    }
    drop(memory);
    connection.close(h2_conn, socket).await;
}

/// Whether the loop of a connection goes on after an event.
enum LoopDecision {
    Continue,
    End,
}

/// One connection that speaks HTTP/2.
struct Http2Connection<'c, P> {
    proxy: &'c Arc<HttpProxy<P>>,
    context: &'c Arc<ListenerContext>,
    shutdown: &'c ShutdownWatch,
    digest: &'c Arc<Digest>,
    facts: &'c ConnectionFacts,
    frame_meter: &'c FrameMeter,
    active_requests: &'c Arc<ActiveRequestCounter>,
    is_closing: bool,
    has_had_request: bool,
    /// The time for which the connection may be idle from now on; `None` if it has not changed.
    new_idle_timeout: Option<Duration>,
    malformed_count: usize,
}

impl<P> Http2Connection<'_, P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// Sends GOAWAY: riskgate accepts no more requests on this connection, and finishes the active
    /// requests.
    fn begin_graceful_close(&mut self, h2_conn: &mut H2Conn) {
        self.is_closing = true;
        h2_conn.graceful_shutdown();
        self.new_idle_timeout = Some(GOAWAY_TIMEOUT);
    }

    /// Ends the connection with ENHANCE_YOUR_CALM, because the client exceeds a limit.
    async fn close_abruptly(&self, h2_conn: &mut H2Conn) -> LoopDecision {
        self.count_flood();
        h2_conn.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
        // The connection ends even if the client does not read GOAWAY.
        let _ = timeout(GOAWAY_TIMEOUT, poll_fn(|task| h2_conn.poll_closed(task))).await;
        LoopDecision::End
    }

    /// Closes the connection. After GOAWAY, waits until the last responses have arrived.
    async fn close(self, h2_conn: H2Conn, socket: RawFd) {
        // A request may still be active that has sent its response and is being logged.
        if self.is_closing && self.active_requests.has_sent_all_bytes() {
            let close = FinalClose::begin(socket);
            drop(h2_conn);
            close.finish(self.context.options.write_timeout).await;
        }
    }

    fn count_flood(&self) {
        self.context.gate.state().metrics.connections.http2_floods.inc();
    }

    async fn on_end_reason(&mut self, reason: EndReason, h2_conn: &mut H2Conn) -> LoopDecision {
        match reason {
            EndReason::LimitExceeded => return self.close_abruptly(h2_conn).await,
            EndReason::HeaderLate if !self.is_closing => self.begin_graceful_close(h2_conn),
            EndReason::HeaderLate => {}
        }
        LoopDecision::Continue
    }

    fn on_idle_outcome(&mut self, outcome: IdleOutcome, h2_conn: &mut H2Conn) -> LoopDecision {
        if self.is_closing || outcome == IdleOutcome::Stalled {
            return LoopDecision::End;
        }
        self.begin_graceful_close(h2_conn);
        LoopDecision::Continue
    }

    /// Serves an accepted request and the requests that have arrived with it. Each accept sends the
    /// responses that are ready. So riskgate accepts all these requests before it answers the first
    /// one, and their responses leave in one write.
    async fn on_accepted(
        &mut self,
        mut accepted: pingora::Result<Option<H2Accept>>,
        h2_conn: &mut H2Conn,
    ) -> LoopDecision {
        let mut batch = ArrayVec::<Box<HttpSession>, MAX_BATCHED_REQUESTS>::new();
        let mut decision = LoopDecision::Continue;
        loop {
            match accepted {
                Ok(Some(H2Accept::Session(session))) => batch.push(Box::new(session)),
                Ok(Some(H2Accept::Rejected)) => decision = self.on_malformed_request(h2_conn),
                Ok(None) => decision = LoopDecision::End,
                Err(error) => {
                    if is_flood_found_by_h2(&error) {
                        self.count_flood();
                    }
                    decision = LoopDecision::End;
                }
            }
            if matches!(decision, LoopDecision::End) || batch.is_full() {
                break;
            }
            let next = HttpSession::from_h2_conn(h2_conn, Arc::clone(self.digest));
            let mut next = pin!(next);
            match poll_fn(|task| Poll::Ready(next.as_mut().poll(task))).await {
                Poll::Ready(next) => accepted = next,
                Poll::Pending => break,
            }
        }
        for session in batch {
            if let LoopDecision::End = self.on_request(session, h2_conn).await {
                return LoopDecision::End;
            }
        }
        decision
    }

    async fn on_request(
        &mut self,
        mut session: Box<HttpSession>,
        h2_conn: &mut H2Conn,
    ) -> LoopDecision {
        // A request may run on after the client has reset its stream. So a client that resets
        // streams and opens new ones can have more active requests than open streams. Those that
        // wait for a server have a limit of their own.
        let active = self.active_requests.count_active();
        let waiting = self.active_requests.unsent.count_without_client();
        if active.saturating_sub(waiting) > 2 * self.context.options.max_streams as usize {
            return self.close_abruptly(h2_conn).await;
        }
        self.frame_meter.count_request(self.max_body_bytes_to_expect(&session));
        if !self.has_had_request && !self.is_closing {
            self.new_idle_timeout = Some(self.context.options.keepalive_timeout);
        }
        self.has_had_request = true;
        // The joined value of valid cookies is valid, so this can't fail.
        let _ = join_cookie_fields(session.req_header_mut());
        let active = ActiveRequestGuard::start(self.active_requests);
        let guards = (active, self.context.tracker.track_request());
        let response = UnsentResponse::begin(&self.active_requests.unsent, guards);
        if !self.context.options.is_fast_path_on {
            self.spawn_request(session, response, false);
        } else if !session.is_body_done() && may_be_long(session.req_header()) {
            // If the body is longer than riskgate holds, the Pingora path follows.
            self.spawn_request(session, response, true);
        } else if let Some((session, response)) =
            serve_or_return(self.context, session, self.facts, response).await
        {
            self.spawn_request(session, response, false);
        }
        LoopDecision::Continue
    }

    /// Returns the most bytes that the body of a request may have: its `Content-Length`, but not
    /// more than riskgate accepts. A body without `Content-Length` may have as many bytes as
    /// riskgate accepts. `None` if the request has no body.
    fn max_body_bytes_to_expect(&self, session: &HttpSession) -> Option<usize> {
        let max = self.context.options.request_limits.body_bytes;
        let length = || request_body::announced_length(session.req_header());
        (!session.is_body_done()).then(|| length().unwrap_or(max).min(max))
    }

    fn on_malformed_request(&mut self, h2_conn: &mut H2Conn) -> LoopDecision {
        self.malformed_count += 1;
        self.frame_meter.count_request(Some(0));
        // Pingora has reset the stream, or has answered 400.
        let gate = &self.context.gate;
        let refused = gate.refuse_before_gates(&Refusal::BadRequest, self.facts, "HTTP/2", false);
        refused.count_and_log(false);
        if self.malformed_count > 2 * MAX_MALFORMED_REQUESTS {
            return LoopDecision::End;
        }
        if self.malformed_count > MAX_MALFORMED_REQUESTS && !self.is_closing {
            self.begin_graceful_close(h2_conn);
        }
        LoopDecision::Continue
    }

    /// Serves the request in a task of its own, on the Pingora path or first on the fast path.
    fn spawn_request(
        &self,
        session: Box<HttpSession>,
        response: Arc<UnsentResponse>,
        tries_fast_path: bool,
    ) {
        let path = PingoraPath {
            proxy: Arc::clone(self.proxy),
            context: Arc::clone(self.context),
            facts: self.facts.clone(),
            shutdown: self.shutdown.clone(),
        };
        match tries_fast_path {
            true => {
                let (context, facts) = (Arc::clone(self.context), self.facts.clone());
                tokio::spawn(async move {
                    let unserved = fast_path::serve(context, session, facts, response).await;
                    if let Some((session, response)) = unserved {
                        // The memory of this future counts only for requests that need it.
                        box_future(|| path.serve(session, response)).await;
                    }
                });
            }
            false => {
                tokio::spawn(path.serve(session, response));
            }
        }
    }
}

/// What serves a request that the fast path does not serve.
struct PingoraPath<P> {
    proxy: Arc<HttpProxy<P>>,
    context: Arc<ListenerContext>,
    facts: ConnectionFacts,
    shutdown: ShutdownWatch,
}

impl<P> PingoraPath<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    async fn serve(self, mut stream: Box<HttpSession>, response: Arc<UnsentResponse>) {
        let PingoraPath { proxy, context, facts, shutdown } = self;
        response.attach_to(stream.req_header_mut());
        let mut session = ServerSession::new_http2(*stream);
        session.set_write_timeout(Some(context.options.write_timeout));
        session.set_total_drain_timeout(Some(context.options.header_timeout));
        let has_body = !session.is_body_done();
        let header = session.req_header();
        match check_http2_request(header, &context.options.request_limits) {
            Ok(_) if has_body => {
                let head = header.clone();
                let served = async {
                    proxy.process_new_http(session, &shutdown).await;
                };
                let body_timeout = context.gate.body_options().timeout;
                if let Some(dropped) = serve_watched(served, &response, body_timeout).await {
                    context.gate.count_and_log(&dropped, &head);
                }
            }
            Ok(_) => {
                proxy.process_new_http(session, &shutdown).await;
            }
            Err(refusal) => refuse_stream(&context.gate, &facts, session, &refusal).await,
        }
    }
}

/// Returns true if the h2 crate closed the connection with ENHANCE_YOUR_CALM.
fn is_flood_found_by_h2(error: &pingora::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<h2::Error>();
    cause.is_some_and(|error| {
        error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
    })
}

/// Sends the response to a refused request, then counts and logs the request. The connection stays
/// open for other streams.
async fn refuse_stream(
    gate: &Gate,
    connection: &ConnectionFacts,
    mut session: ServerSession,
    refusal: &Refusal,
) {
    let head = session.req_header();
    let mut refused = match refusal.is_after_whole_head() {
        true => {
            let logged_head = LoggedHead::Header(Box::new(head.clone()));
            gate.refuse_with_head(refusal, connection, "HTTP/2", (head, logged_head))
        }
        false => {
            let is_head_method = head.method == http::Method::HEAD;
            gate.refuse_before_gates(refusal, connection, "HTTP/2", is_head_method)
        }
    };
    let is_sent = refused.send_on_http2_stream(&mut session).await;
    let held = refused.begin_held_body();
    let request_bytes = waiting_request_bytes(session.req_header(), FAST_PATH_TASK_BYTES);
    refused.count_and_log(is_sent);
    discard_rest_of_body(&mut session, held, request_bytes).await;
}
