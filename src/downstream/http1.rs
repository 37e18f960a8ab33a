//! HTTP/1.1 on a connection: one request after the other. riskgate reads and checks the whole head
//! of a request before Pingora gets it.

use std::sync::Arc;

use pingora::apps::HttpServerApp;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::time::Instant;

use super::boxed::box_future;
use super::client_io::{ClientIo, LINGER_TIMEOUT};
use super::connection_tracker::CountGuard;
use super::context::ListenerContext;
use super::fast_path_connection::{FastPathExit, serve_fast_path};
use super::idle_wait::{IdleWait, finish_unless_shutdown};
use super::request_io::{RequestIo, ReturnedConnection};
use crate::exchange::closes_after_response;
use crate::gate::{LoggedHead, ParsedBytes};
use crate::message::request_head::{
    RequestBodyFraming, RequestHead, RequestLineGuess, parse_request_head, without_body,
};
use crate::model::refusal::Refusal;
use crate::proxy::request_body;
use crate::support::test_fault::{TestFault, is_injected};

/// The result of reading a request head.
enum HeadReadOutcome {
    /// The head is complete and valid.
    Request(RequestFraming),
    /// The head is invalid; the client gets this refusal.
    Refused(Refusal),
    /// The client closed the connection or was too slow, or the process is about to end; the client
    /// gets no response.
    Disconnected,
}

/// What the connection needs to know of a request: its lengths, and what the client expects.
struct RequestFraming {
    /// The length of the header, in bytes.
    header_length: usize,
    /// Where the body ends.
    body: RequestBodyFraming,
    /// Whether the client wants the connection to close after the response.
    wants_close: bool,
    /// Whether the client waits for a 100 before it sends the body.
    awaits_continue: bool,
}

impl From<RequestHead<'_>> for RequestFraming {
    fn from(head: RequestHead<'_>) -> RequestFraming {
        RequestFraming {
            header_length: head.head_length,
            body: head.body,
            wants_close: head.fields.wants_close,
            awaits_continue: head.awaits_continue(),
        }
    }
}

/// How a connection continues after a request.
enum ConnectionAfterRequest {
    KeepAlive(Box<ClientIo>),
    /// The connection closes. The time is the one at which the last response was written.
    Close(Box<ClientIo>, Instant),
}

/// Serves one connection that speaks HTTP/1.1.
pub(super) struct Http1Server<'c, P> {
    pub proxy: &'c Arc<HttpProxy<P>>,
    pub context: &'c ListenerContext,
}

impl<P> Http1Server<'_, P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// Serves requests until the connection ends. The first request must start by `deadline`.
    pub(super) async fn serve_http1(
        &self,
        mut client_io: Box<ClientIo>,
        mut idle_wait: IdleWait,
        shutdown: &ShutdownWatch,
        mut deadline: Instant,
    ) {
        let mut answered_at = Instant::now();
        loop {
            if self.context.options.is_fast_path_on {
                match serve_fast_path(
                    self.context,
                    &mut client_io,
                    &mut idle_wait,
                    answered_at,
                    deadline,
                )
                .await
                {
                    FastPathExit::Ended => return,
                    FastPathExit::ToPingora(last) => (answered_at, deadline) = last,
                }
            }
            let idle_wait = &mut idle_wait;
            let served = box_future(|| {
                self.serve_pingora_path(client_io, idle_wait, shutdown, answered_at, deadline)
            });
            match served.await {
                Some((returned, at)) => (client_io, answered_at) = (returned, at),
                None => return,
            }
            deadline = answered_at + self.context.options.keepalive_timeout;
        }
    }

    /// Serves requests on the Pingora path. Returns `None` once the connection has ended. If the
    /// fast path is on, returns the connection after one request, and the time of the response.
    async fn serve_pingora_path(
        &self,
        mut client_io: Box<ClientIo>,
        idle_wait: &mut IdleWait,
        shutdown: &ShutdownWatch,
        mut answered_at: Instant,
        mut deadline: Instant,
    ) -> Option<(Box<ClientIo>, Instant)> {
        loop {
            let request =
                self.wait_for_first_byte(&mut client_io, idle_wait, answered_at, deadline).await?;
            let head = self.read_request_head(&mut client_io);
            let head = finish_unless_shutdown(shutdown, &self.context.tracker, head);
            let served = match head.await.unwrap_or(HeadReadOutcome::Disconnected) {
                HeadReadOutcome::Request(framing) => {
                    self.serve_request_with_pingora(client_io, framing, shutdown).await?
                }
                HeadReadOutcome::Refused(refusal) => {
                    self.refuse_request(client_io, &refusal).await?
                }
                HeadReadOutcome::Disconnected => return None,
            };
            drop(request);
            client_io = match served {
                ConnectionAfterRequest::KeepAlive(client_io) => client_io,
                ConnectionAfterRequest::Close(mut client_io, answered) => {
                    let header_timeout = self.context.options.header_timeout;
                    let tracker = &self.context.tracker;
                    client_io.shut_down_and_linger(answered, header_timeout, tracker).await;
                    return None;
                }
            };
            answered_at = Instant::now();
            deadline = answered_at + self.context.options.keepalive_timeout;
            if self.context.options.is_fast_path_on {
                return Some((client_io, answered_at));
            }
        }
    }

    /// Waits for the first byte of a request. The request counts as in flight until the returned
    /// guard is dropped. Returns `None` if no byte arrives.
    async fn wait_for_first_byte(
        &self,
        client_io: &mut ClientIo,
        idle_wait: &mut IdleWait,
        answered_at: Instant,
        deadline: Instant,
    ) -> Option<CountGuard> {
        let has_arrived = idle_wait
            .wait_for_request_bytes(client_io, &self.context.tracker, answered_at, deadline)
            .await;
        has_arrived.then(|| self.context.tracker.track_request())
    }

    async fn read_request_head(&self, client_io: &mut ClientIo) -> HeadReadOutcome {
        let deadline = Instant::now() + self.context.options.header_timeout;
        let mut scanned = 0;
        loop {
            match parse_request_head(
                &client_io.read_buf,
                scanned,
                &self.context.options.request_limits,
            ) {
                Ok(Some(head)) => return HeadReadOutcome::Request(head.into()),
                Ok(None) => {}
                Err(refusal) => return HeadReadOutcome::Refused(refusal),
            }
            scanned = client_io.read_buf.len();
            if !client_io.read_more(deadline).await {
                return HeadReadOutcome::Disconnected;
            }
        }
    }

    /// Lets Pingora serve one request. Returns `None` if Pingora has not given the connection back.
    async fn serve_request_with_pingora(
        &self,
        mut client_io: Box<ClientIo>,
        framing: RequestFraming,
        shutdown: &ShutdownWatch,
    ) -> Option<ConnectionAfterRequest> {
        let header_length = match is_injected(TestFault::PassWholeReadBuffer) {
            true => client_io.read_buf.len(),
            false => framing.header_length,
        };
        let header = client_io.read_buf.split_to(header_length);
        let (io, mut returned) = RequestIo::new(client_io, framing.body, framing.awaits_continue);
        let mut session = ServerSession::new_http1(Box::new(io));
        session.set_pipelined_prefix(header);
        // When Pingora reads the header, it overwrites the session's keep-alive. It does not
        // overwrite the number of reuses: with 0, Pingora closes the connection after the response.
        let is_last =
            closes_after_response(None, framing.wants_close, self.context.tracker.is_draining());
        session.set_keepalive_reuses_remaining(is_last.then_some(0));
        // If the response is sent before a short or chunked body has arrived, Pingora reads the
        // body to its end and keeps the connection. If the client waits for a 100, Pingora closes
        // the connection: riskgate can't know whether the client will still send the body.
        let is_long = matches!(framing.body, RequestBodyFraming::Length(length)
            if length > request_body::MAX_HELD_BODY_BYTES);
        let is_read_to_end = !is_long && !framing.awaits_continue;
        session.set_close_on_response_before_downstream_finish(!is_read_to_end);
        session.set_read_timeout(Some(self.context.options.header_timeout));
        session.set_write_timeout(Some(self.context.options.write_timeout));
        // For at most this time, Pingora reads and discards the rest of the body. Then it closes
        // the connection. The time is short, because the drain of the process waits as well.
        session
            .set_total_drain_timeout(Some(self.context.options.header_timeout.min(LINGER_TIMEOUT)));
        // A client may close its sending side and still wait for the response.
        session.set_abort_on_close(false);
        session.set_ignore_info_resp(!is_injected(TestFault::ForwardInformational));
        let is_kept = self.proxy.process_new_http(session, shutdown).await.is_some();
        let ReturnedConnection { client_io, has_unread_body, answered_at: answered } =
            returned.try_recv().ok()?;
        // On a connection that is kept, riskgate would parse the rest of a body as a request.
        let is_kept = is_kept && !has_unread_body;
        Some(if is_kept {
            ConnectionAfterRequest::KeepAlive(client_io)
        } else {
            ConnectionAfterRequest::Close(client_io, answered)
        })
    }

    /// Sends the response to a refused request head, then counts and logs the request. Returns
    /// `None` if the response could not be sent.
    async fn refuse_request(
        &self,
        mut client_io: Box<ClientIo>,
        refusal: &Refusal,
    ) -> Option<ConnectionAfterRequest> {
        let line = RequestLineGuess::guess(&client_io.read_buf);
        let (gate, facts) = (&self.context.gate, client_io.connection_facts());
        let header;
        let mut refused = match refusal.is_after_whole_head() {
            true => {
                header = without_body(&client_io.read_buf).to_vec();
                let head = (ParsedBytes(&header), LoggedHead::Bytes(&header));
                gate.refuse_with_head(refusal, &facts, line.protocol(), head)
            }
            false => {
                gate.refuse_before_gates(refusal, &facts, line.protocol(), line.is_head_method)
            }
        };
        let bytes = refused.render_as_http1();
        let is_sent = client_io.send_bytes(&bytes, self.context.options.write_timeout, None).await;
        refused.count_and_log(is_sent);
        is_sent.then(|| ConnectionAfterRequest::Close(client_io, Instant::now()))
    }
}
