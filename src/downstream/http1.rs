//! HTTP/1.1 on a connection: one request after the other, each whole before it is handed on.

use pingora_core::apps::HttpServerApp;
use pingora_core::protocols::UniqueID;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::ProxyHttp;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::client_io::{LINGER, RequestIo, Returned, Wire};
use super::connection_tracker::Counted;
use super::idle_wait::{End, Silence};
use super::requests::Onward;
use super::{Door, apart};
use crate::gate::Visit;
use crate::message::request_head::{Head, read_head};
use crate::message::response::{Common, Reply, Way};
use crate::model::refusal::Refusal;
use crate::proxy::request_body;
use crate::support::socket_reset::ends_by_reset;

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

impl<P> Door<P>
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
            if self.options.lane {
                match self.serve_plain(&mut wire, &mut silence, answered, deadline).await {
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
            deadline = answered + self.options.keepalive_timeout;
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
                    self.close(&mut wire, answered).await;
                    return None;
                }
            };
            answered = Instant::now();
            deadline = answered + self.options.keepalive_timeout;
            if self.options.lane {
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
        let has_come = self.await_bytes(wire, silence, answered, deadline).await;
        has_come.then(|| self.traffic.begin())
    }

    /// Waits for bytes on a connection that has been silent since `answered`; `false` if none come.
    pub(super) async fn await_bytes(
        &self,
        wire: &mut Wire,
        silence: &mut Silence,
        answered: Instant,
        deadline: Instant,
    ) -> bool {
        !wire.ahead.is_empty()
            || match silence.end(wire, deadline).await {
                End::Bytes => true,
                End::Over => false,
                // Its next request may be under way.
                End::Stop => {
                    let last_call = answered + self.traffic.last_call();
                    wire.read_more(deadline.min(last_call)).await
                }
            }
    }

    async fn read_rest(&self, wire: &mut Wire) -> Arrival {
        let deadline = Instant::now() + self.options.header_timeout;
        let mut searched = 0;
        loop {
            match read_head(&wire.ahead, searched, &self.options.sizes) {
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
        let is_last = shape.closes || self.traffic.is_draining();
        session.set_keepalive_reuses_remaining(is_last.then_some(0));
        // Behind an answer that comes first a short body is read to its end, and the connection is
        // kept. Whether a client that waits for a 100 sends one then, it alone knows.
        let is_awaited = shape.body <= request_body::SHORT && !shape.awaits_continue;
        session.set_close_on_response_before_downstream_finish(!is_awaited);
        session.set_read_timeout(Some(self.options.header_timeout));
        session.set_write_timeout(Some(self.options.write_timeout));
        // Who takes longer is closed, which takes no notice of the process's end for so long only.
        session.set_total_drain_timeout(Some(self.options.header_timeout.min(LINGER)));
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
        visit.common = Common { request_id: self.gate.state().ids.next(), ..Common::default() };
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        let mut bytes = Vec::with_capacity(512);
        let way = Way { closes: true, is_head: false };
        Reply::refusal(refusal).render(&visit.common, date.as_bytes(), way, &mut bytes);
        let client = wire.client_address();
        let write = async {
            wire.write_all(&bytes).await?;
            wire.flush().await
        };
        let written = timeout(self.options.write_timeout, write).await;
        self.gate.record_refusal(refusal, &mut visit, client);
        matches!(written, Ok(Ok(()))).then(|| Served::Ends(wire, Instant::now()))
    }

    /// Ends a connection so that its last answer arrives: no more is sent, and what the client
    /// still sends is read and dropped, until as long after the answer as a header may take.
    pub(super) async fn close(&self, wire: &mut Wire, answered: Instant) {
        // An answer that was cut must not look whole.
        if ends_by_reset(wire.id()) {
            return;
        }
        let end = answered + self.options.header_timeout;
        let closed = async {
            // TLS says first that no more comes, which a client that does not read holds up.
            if wire.shutdown().await.is_ok() {
                wire.discard(end).await;
            }
        };
        let drained = async {
            self.traffic.drain_begun().await;
            sleep(LINGER).await;
        };
        tokio::select! {
            _ = timeout_at(end, closed) => {}
            () = drained => {}
        }
    }
}
