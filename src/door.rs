//! The connection: our own thin server app in front of Pingora's HTTP proxy.
//!
//! Owns what Pingora leaves open: one deadline for a whole request header, sizes, the grammar of
//! what comes in, pipelining, the cap on connections, and the count of what is in flight. It
//! hands on exactly one well-formed request at a time and knows no key, route or table.

mod head;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use crate::gate::{Gate, Visit, new_request_id};
use crate::refusal::Refusal;
use crate::reply::{Common, Reply};

pub use head::Sizes;
use head::{Head, read_head};
use wire::Wire;

/// Time and number at the door.
#[derive(Clone, Debug)]
pub struct DoorOptions {
    /// For a whole request header, from its first byte to its last.
    pub header_timeout: Duration,
    /// For the next request on a connection to begin.
    pub keepalive_timeout: Duration,
    /// For a part of an answer to be taken by the client.
    pub write_timeout: Duration,
    /// Connections at the same time.
    pub max_connections: usize,
    /// Sizes of what comes in.
    pub sizes: Sizes,
}

/// What is open and what is under way, for the drain and the metrics.
#[derive(Default)]
pub struct Traffic {
    connections: AtomicUsize,
    in_flight: AtomicUsize,
    draining: AtomicBool,
    closed: AtomicBool,
    idle: tokio::sync::Notify,
}

impl Traffic {
    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Requests between their first byte and the end of their answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// From now on every answer says that its connection closes.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Resolves once no listener accepts any more.
    pub async fn closed(&self) {
        self.until(|| self.closed.load(Ordering::Acquire)).await;
    }

    /// Resolves once nothing is in flight and no connection is open.
    pub async fn finished(&self) {
        self.until(|| self.in_flight() == 0 && self.connections() == 0).await;
    }

    async fn until(&self, condition: impl Fn() -> bool) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if condition() {
                return;
            }
            idle.await;
        }
    }
}

/// Counts one connection or request for as long as it lives, panics included.
struct Counted<'t> {
    traffic: &'t Traffic,
    count: &'t AtomicUsize,
}

impl<'t> Counted<'t> {
    fn enter(traffic: &'t Traffic, count: &'t AtomicUsize) -> Counted<'t> {
        count.fetch_add(1, Ordering::Relaxed);
        Counted { traffic, count }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.traffic.idle.notify_waiters();
    }
}

/// The server app: listens in place of [`HttpProxy`] and hands requests on to it.
pub struct Door<P> {
    proxy: Arc<HttpProxy<P>>,
    gate: Gate,
    options: DoorOptions,
    traffic: Arc<Traffic>,
}

/// What came of waiting for a request.
enum Arrival {
    Request(Head),
    Refused(Refusal),
    /// Closed, idle for too long, or too slow: there is nobody to answer.
    Gone,
}

impl<P> Door<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// A door in front of `proxy`; `gate` counts and logs what is refused here.
    pub fn new(
        proxy: HttpProxy<P>,
        gate: Gate,
        options: DoorOptions,
        traffic: Arc<Traffic>,
    ) -> Door<P> {
        Door { proxy: Arc::new(proxy), gate, options, traffic }
    }

    async fn serve(&self, stream: Stream, shutdown: &ShutdownWatch) {
        let mut wire = Wire::new(stream);
        let mut shutdown = shutdown.clone();
        let mut first = true;
        loop {
            let (arrival, _request) =
                match self.await_request(&mut wire, &mut shutdown, first).await {
                    Some(begun) => begun,
                    None => return,
                };
            let head = match arrival {
                Arrival::Request(head) => head,
                Arrival::Refused(refusal) => return self.refuse(wire, &refusal).await,
                Arrival::Gone => return,
            };
            first = false;
            match self.hand_on(wire, head, &shutdown).await {
                Some(returned) => wire = returned,
                None => return,
            }
        }
    }

    /// Waits for the first byte of a request, then for the rest of its header. A request counts
    /// as in flight from its first byte on.
    async fn await_request(
        &self,
        wire: &mut Wire,
        shutdown: &mut ShutdownWatch,
        first: bool,
    ) -> Option<(Arrival, Counted<'_>)> {
        let idle = if first { self.options.header_timeout } else { self.options.keepalive_timeout };
        if wire.ahead.is_empty() {
            if self.traffic.is_draining() && !first {
                return None;
            }
            let stopped = async { shutdown.wait_for(|stop| *stop).await.map(|_| ()) };
            tokio::select! {
                biased;
                read = timeout(idle, wire.inner.read_buf(&mut wire.ahead)) => match read {
                    Ok(Ok(1..)) => {}
                    _ => return None,
                },
                _ = stopped => return None,
            }
        }
        let request = Counted::enter(&self.traffic, &self.traffic.in_flight);
        Some((self.read_rest(wire).await, request))
    }

    async fn read_rest(&self, wire: &mut Wire) -> Arrival {
        let deadline = Instant::now() + self.options.header_timeout;
        let mut searched = 0;
        loop {
            match read_head(&wire.ahead, searched, &self.options.sizes) {
                Ok(Some(head)) => return Arrival::Request(head),
                Ok(None) => {}
                Err(refusal) => return Arrival::Refused(refusal),
            }
            searched = wire.ahead.len();
            match timeout_at(deadline, wire.inner.read_buf(&mut wire.ahead)).await {
                Ok(Ok(1..)) => {}
                _ => return Arrival::Gone,
            }
        }
    }

    async fn hand_on(&self, mut wire: Wire, head: Head, shutdown: &ShutdownWatch) -> Option<Wire> {
        let header = wire.ahead.split_to(head.length);
        wire.allowance = head.body;
        let mut session = ServerSession::new_http1(Box::new(wire));
        session.set_pipelined_prefix(header);
        // Reading the header sets Pingora's keep-alive anew; how often is left to us.
        session.set_keepalive_reuses_remaining(self.traffic.is_draining().then_some(0));
        session.set_read_timeout(Some(self.options.header_timeout));
        session.set_write_timeout(Some(self.options.write_timeout));
        session.set_total_drain_timeout(Some(self.options.header_timeout));
        // A client may close its sending side and still wait for the answer.
        session.set_abort_on_close(false);
        session.set_ignore_info_resp(true);
        let returned = self.proxy.process_new_http(session, shutdown).await?;
        let (stream, _) = returned.consume();
        let wire = *stream.into_any().downcast::<Wire>().ok()?;
        // A body that was not read to its end would be taken for the next request.
        (wire.allowance == 0).then_some(wire)
    }

    /// Answers what is no request, and closes.
    async fn refuse(&self, mut wire: Wire, refusal: &Refusal) {
        let mut visit = Visit::default();
        visit.common = Common { request_id: new_request_id(), ..Common::default() };
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        let bytes: Bytes = Reply::refusal(refusal).wire(&visit.common, &date);
        let client = wire.client_address();
        let write = async {
            wire.inner.write_all(&bytes).await?;
            wire.inner.flush().await?;
            wire.inner.shutdown().await
        };
        let written = timeout(self.options.write_timeout, write).await;
        self.gate.record_refusal(refusal, &mut visit, client);
        if matches!(written, Ok(Ok(()))) {
            // Unread bytes would turn our close into a reset that eats the answer.
            let mut sink = BytesMut::with_capacity(4096);
            let linger = Instant::now() + Duration::from_secs(1);
            while let Ok(Ok(1..)) = timeout_at(linger, wire.inner.read_buf(&mut sink)).await {
                sink.clear();
            }
        }
    }
}

#[async_trait]
impl<P> ServerApp for Door<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let metrics = &self.gate.state().metrics;
        if self.traffic.connections() >= self.options.max_connections {
            metrics.connections_refused.inc();
            return None;
        }
        let _connection = Counted::enter(&self.traffic, &self.traffic.connections);
        self.serve(stream, shutdown).await;
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
        self.traffic.closed.store(true, Ordering::Release);
        self.traffic.idle.notify_waiters();
    }
}
