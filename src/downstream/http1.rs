//! HTTP/1.1 on a connection: one request after the other, each whole before it is handed on.

use std::sync::Arc;

use pingora_core::apps::HttpServerApp;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use super::boxed::apart;
use super::client_io::{LINGER, Wire};
use super::connection_tracker::Counted;
use super::context::ConnectionContext;
use super::idle_wait::Silence;
use super::request_io::{RequestIo, Returned};
use super::requests::{Onward, serve_plain};
use crate::gate::Visit;
use crate::message::request_head::{Head, read_head};
use crate::message::response::{Common, Reply, Way};
use crate::model::refusal::Refusal;
use crate::proxy::request_body;

/// What came of waiting for a request.
enum Arrival {
    Request(Shape),
    Refused(Refusal),
    /// Closed, idle for too long, or too slow: there is nobody to answer.
    Gone,
}

/// What the connection must know of a request.
struct Shape {
    /// Bytes of its header, and of its body.
    header: usize,
    body: usize,
    /// The client wants the connection to close behind the answer.
    closes: bool,
    /// The client waits for a 100 before it sends the body.
    awaits_continue: bool,
}

impl From<Head<'_>> for Shape {
    fn from(head: Head<'_>) -> Shape {
        let awaits_continue = head.body > 0 && head.line.is_http_11 && head.fields.expects_continue;
        let closes = head.fields.closes;
        Shape { header: head.length, body: head.body, closes, awaits_continue }
    }
}

/// How a connection goes on behind a request.
enum Served {
    Kept(Box<Wire>),
    /// Its last answer was written then.
    Ends(Box<Wire>, Instant),
}

/// One connection that speaks HTTP/1.1.
pub(super) struct Http1<'c, P> {
    pub proxy: &'c Arc<HttpProxy<P>>,
    pub context: &'c ConnectionContext,
}

impl<P> Http1<'_, P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// Serves requests until the connection ends; the first must begin by `deadline`.
    pub(super) async fn serve_http1(
        &self,
        mut wire: Box<Wire>,
        mut silence: Silence,
        shutdown: &ShutdownWatch,
        mut deadline: Instant,
    ) {
        let mut answered = Instant::now();
        loop {
            if self.context.options.lane {
                match serve_plain(self.context, &mut wire, &mut silence, answered, deadline).await {
                    Onward::Ended => return,
                    Onward::General(last) => (answered, deadline) = last,
                }
            }
            let silence = &mut silence;
            let served = apart(|| self.serve_general(wire, silence, shutdown, answered, deadline));
            match served.await {
                Some((returned, last)) => (wire, answered) = (returned, last),
                None => return,
            }
            deadline = answered + self.context.options.keepalive_timeout;
        }
    }

    /// Serves requests on the general way: until the connection ends, or until the lane may go on,
    /// since then without a request.
    async fn serve_general(
        &self,
        mut wire: Box<Wire>,
        silence: &mut Silence,
        shutdown: &ShutdownWatch,
        mut answered: Instant,
        mut deadline: Instant,
    ) -> Option<(Box<Wire>, Instant)> {
        loop {
            let request = self.await_request(&mut wire, silence, answered, deadline).await?;
            let served = match self.read_rest(&mut wire).await {
                Arrival::Request(shape) => self.hand_on(wire, shape, shutdown).await?,
                Arrival::Refused(refusal) => self.refuse(wire, &refusal).await?,
                Arrival::Gone => return None,
            };
            drop(request);
            wire = match served {
                Served::Kept(wire) => wire,
                Served::Ends(mut wire, answered) => {
                    let header_timeout = self.context.options.header_timeout;
                    let traffic = &self.context.traffic;
                    wire.close_connection(answered, header_timeout, traffic).await;
                    return None;
                }
            };
            answered = Instant::now();
            deadline = answered + self.context.options.keepalive_timeout;
            if self.context.options.lane {
                return Some((wire, answered));
            }
        }
    }

    /// Waits for the first byte of a request, which counts as in flight from then on.
    async fn await_request(
        &self,
        wire: &mut Wire,
        silence: &mut Silence,
        answered: Instant,
        deadline: Instant,
    ) -> Option<Counted> {
        let has_come = silence.await_bytes(wire, &self.context.traffic, answered, deadline).await;
        has_come.then(|| self.context.traffic.begin())
    }

    async fn read_rest(&self, wire: &mut Wire) -> Arrival {
        let deadline = Instant::now() + self.context.options.header_timeout;
        let mut searched = 0;
        loop {
            match read_head(&wire.ahead, searched, &self.context.options.sizes) {
                Ok(Some(head)) => return Arrival::Request(head.into()),
                Ok(None) => {}
                Err(refusal) => return Arrival::Refused(refusal),
            }
            searched = wire.ahead.len();
            if !wire.read_more(deadline).await {
                return Arrival::Gone;
            }
        }
    }

    /// Has Pingora serve one request. Nothing comes back if Pingora's task has ended by a panic.
    async fn hand_on(
        &self,
        mut wire: Box<Wire>,
        shape: Shape,
        shutdown: &ShutdownWatch,
    ) -> Option<Served> {
        let header = wire.ahead.split_to(shape.header);
        let (io, mut returned) = RequestIo::new(wire, shape.body, shape.awaits_continue);
        let mut session = ServerSession::new_http1(Box::new(io));
        session.set_pipelined_prefix(header);
        // Reading the header sets Pingora's keep-alive anew; how often is left to us.
        let is_last = shape.closes || self.context.traffic.is_draining();
        session.set_keepalive_reuses_remaining(is_last.then_some(0));
        // Behind an answer that comes first a short body is read to its end, and the connection is
        // kept. Whether a client that waits for a 100 sends one then, it alone knows.
        let is_awaited = shape.body <= request_body::SHORT && !shape.awaits_continue;
        session.set_close_on_response_before_downstream_finish(!is_awaited);
        session.set_read_timeout(Some(self.context.options.header_timeout));
        session.set_write_timeout(Some(self.context.options.write_timeout));
        // Who takes longer is closed, which takes no notice of the process's end for so long only.
        session.set_total_drain_timeout(Some(self.context.options.header_timeout.min(LINGER)));
        // A client may close its sending side and still wait for the answer.
        session.set_abort_on_close(false);
        session.set_ignore_info_resp(true);
        let is_kept = self.proxy.process_new_http(session, shutdown).await.is_some();
        let Returned { wire, body_left, answered } = returned.try_recv().ok()?;
        // A body that was not read to its end would be taken for the next request.
        let is_kept = is_kept && body_left == 0;
        Some(if is_kept { Served::Kept(wire) } else { Served::Ends(wire, answered) })
    }

    /// Answers what is no request.
    async fn refuse(&self, mut wire: Box<Wire>, refusal: &Refusal) -> Option<Served> {
        let mut visit = Visit::default();
        visit.common =
            Common { request_id: self.context.gate.state().ids.next(), ..Common::default() };
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        let mut bytes = Vec::with_capacity(512);
        let way = Way { closes: true, is_head: false };
        Reply::refusal(refusal).render(&visit.common, date.as_bytes(), way, &mut bytes);
        let client = wire.client_address();
        let write = async {
            wire.write_all(&bytes).await?;
            wire.flush().await
        };
        let written = timeout(self.context.options.write_timeout, write).await;
        self.context.gate.record_refusal(refusal, &mut visit, client);
        matches!(written, Ok(Ok(()))).then(|| Served::Ends(wire, Instant::now()))
    }
}
