//! HTTP/1.1 on a connection: one request after the other, each whole before it is handed on.

use pingora_core::apps::HttpServerApp;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::ProxyHttp;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use super::plain::Onward;
use super::silence::{End, Silence};
use super::traffic::Counted;
use super::wire::Wire;
use super::{Door, apart};
use crate::gate::Visit;
use crate::head::read_head;
use crate::refusal::Refusal;
use crate::reply::{Common, Reply, Way};

/// What came of waiting for a request.
enum Arrival {
    /// So many bytes of header, and of body, and whether it is the last.
    Request(usize, usize, bool),
    Refused(Refusal),
    /// Closed, idle for too long, or too slow: there is nobody to answer.
    Gone,
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
            let (header, body, closes) = match self.read_rest(&mut wire).await {
                Arrival::Request(header, body, closes) => (header, body, closes),
                Arrival::Refused(refusal) => {
                    self.refuse(wire, &refusal).await;
                    return None;
                }
                Arrival::Gone => return None,
            };
            wire = self.hand_on(wire, header, body, closes, shutdown).await?;
            drop(request);
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
                Ok(Some(head)) => {
                    return Arrival::Request(head.length, head.body, head.fields.closes);
                }
                Ok(None) => {}
                Err(refusal) => return Arrival::Refused(refusal),
            }
            searched = wire.ahead.len();
            if !wire.read_more(deadline).await {
                return Arrival::Gone;
            }
        }
    }

    async fn hand_on(
        &self,
        mut wire: Box<Wire>,
        header: usize,
        body: usize,
        closes: bool,
        shutdown: &ShutdownWatch,
    ) -> Option<Box<Wire>> {
        let header = wire.ahead.split_to(header);
        wire.allowance = body;
        let mut session = ServerSession::new_http1(wire);
        session.set_pipelined_prefix(header);
        // Reading the header sets Pingora's keep-alive anew; how often is left to us.
        let is_last = closes || self.traffic.is_draining();
        session.set_keepalive_reuses_remaining(is_last.then_some(0));
        session.set_read_timeout(Some(self.options.header_timeout));
        session.set_write_timeout(Some(self.options.write_timeout));
        session.set_total_drain_timeout(Some(self.options.header_timeout));
        // A client may close its sending side and still wait for the answer.
        session.set_abort_on_close(false);
        session.set_ignore_info_resp(true);
        let returned = self.proxy.process_new_http(session, shutdown).await?;
        let (stream, _) = returned.consume();
        let wire = stream.into_any().downcast::<Wire>().ok()?;
        // A body that was not read to its end would be taken for the next request.
        (wire.allowance == 0).then_some(wire)
    }

    /// Answers what is no request, and closes.
    async fn refuse(&self, mut wire: Box<Wire>, refusal: &Refusal) {
        let mut visit = Visit::default();
        visit.common = Common { request_id: self.gate.state().ids.next(), ..Common::default() };
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        let mut bytes = Vec::with_capacity(512);
        let way = Way { closes: true, is_head: false };
        Reply::refusal(refusal).render(&visit.common, date.as_bytes(), way, &mut bytes);
        let client = wire.client_address();
        let write = async {
            wire.write_all(&bytes).await?;
            wire.shutdown().await
        };
        let written = timeout(self.options.write_timeout, write).await;
        self.gate.record_refusal(refusal, &mut visit, client);
        if matches!(written, Ok(Ok(()))) {
            wire.linger().await;
        }
    }
}
