//! HTTP/2 on a connection: its limits, its end, and one task for each request.
//!
//! Frames are the h2 crate's, which closes a connection that floods it with CONTINUATION, SETTINGS
//! or resets. Each request is held to the same grammar and sizes as one of HTTP/1.1.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pingora_core::apps::HttpServerApp;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::{
    H2Accept, H2Options, HttpSession, default_h2_options, handshake,
};
use pingora_core::protocols::{Digest, Stream};
use pingora_core::server::ShutdownWatch;
use pingora_proxy::ProxyHttp;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::client_io::{Meter, Wire};
use super::connection_tracker::Counted;
use super::{Door, DoorOptions};
use crate::gate::Visit;
use crate::message::request_head::check_http2;
use crate::message::response::{Common, Reply};
use crate::model::refusal::Refusal;
use crate::proxy::request_body;

/// What one stream may keep in memory for a client that does not read.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that a client may reset before they are looked at, or that we reset for its errors.
const RESETS: usize = 20;
/// Streams that we reset and still know, and for how long, so that what was under way on them is
/// ignored.
const MOST_RESET_REMEMBERED: usize = 1024;
const RESET_REMEMBERED_FOR: Duration = Duration::from_secs(10);
/// Requests on one connection that are malformed beyond what is answered.
const MALFORMED: usize = 32;
/// Bytes that a client may send without a request: settings, pings, windows.
const TALK: i64 = 64 * 1024;
/// For a client to take our GOAWAY and close.
const GOODBYE: Duration = Duration::from_secs(1);

/// The requests of one connection that are under way.
#[derive(Default)]
struct Streams {
    active: AtomicUsize,
    ended: Notify,
}

/// One of them, for as long as it lives, panics included.
struct Active(Arc<Streams>);

impl Active {
    fn begin(streams: &Arc<Streams>) -> Active {
        streams.active.fetch_add(1, Ordering::SeqCst);
        Active(Arc::clone(streams))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.notify_one();
    }
}

impl Streams {
    fn active(&self) -> usize {
        self.active.load(Ordering::SeqCst)
    }

    /// Resolves once nothing has been under way for this long.
    async fn idle_for(&self, time: Duration) {
        while self.active() > 0 {
            self.ended.notified().await;
        }
        sleep(time).await;
    }
}

fn options(door: &DoorOptions) -> H2Options {
    let mut options = default_h2_options();
    options
        .max_concurrent_streams(door.max_streams)
        .max_header_list_size(u32::try_from(door.sizes.header_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESETS)
        // A frame that was under way when its stream was reset is no fault of the client's.
        .max_concurrent_reset_streams(MOST_RESET_REMEMBERED)
        .reset_stream_duration(RESET_REMEMBERED_FOR)
        .max_local_error_reset_streams(Some(RESETS));
    options
}

impl<P> Door<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// Serves requests until the connection ends.
    pub(super) async fn serve_http2(self: &Arc<Self>, mut wire: Wire, shutdown: &ShutdownWatch) {
        let talk = wire.metered(TALK);
        let stream: Stream = Box::new(wire);
        let digest = Arc::new(Digest {
            ssl_digest: stream.get_ssl_digest(),
            timing_digest: stream.get_timing_digest(),
            proxy_digest: stream.get_proxy_digest(),
            socket_digest: stream.get_socket_digest(),
        });
        let begun = handshake(stream, Some(options(&self.options)));
        let Ok(Ok(mut connection)) = timeout(self.options.header_timeout, begun).await else {
            return;
        };
        let streams = Arc::new(Streams::default());
        let (mut closing, mut malformed) = (false, 0);
        // The first request has the time of a header. What else a client says gives it no more.
        let idle = streams.idle_for(self.options.header_timeout);
        tokio::pin!(idle);
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.traffic.drain_begun(), if !closing => {
                    closing = true;
                    idle.set(streams.idle_for(GOODBYE));
                    connection.graceful_shutdown();
                    continue;
                }
                accepted = HttpSession::from_h2_conn(&mut connection, Arc::clone(&digest)) => accepted,
                () = talk.exceeded() => {
                    talk.reset();
                    // Bodies are counted too, but not when nothing is under way.
                    if streams.active() == 0 && !closing {
                        connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
                        closing = true;
                        idle.set(streams.idle_for(GOODBYE));
                    }
                    continue;
                }
                () = &mut idle => {
                    if closing {
                        return;
                    }
                    closing = true;
                    idle.set(streams.idle_for(GOODBYE));
                    connection.graceful_shutdown();
                    continue;
                }
            };
            match accepted {
                Ok(Some(H2Accept::Session(session))) => {
                    // Who resets and asks anew has more under way than its streams show.
                    if streams.active() > 2 * self.options.max_streams as usize {
                        connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
                        closing = true;
                        idle.set(streams.idle_for(GOODBYE));
                        continue;
                    }
                    talk.reset();
                    self.spawn(session, Active::begin(&streams), Arc::clone(&talk), shutdown);
                    let patience = if closing { GOODBYE } else { self.options.keepalive_timeout };
                    idle.set(streams.idle_for(patience));
                }
                Ok(Some(H2Accept::Rejected)) => {
                    malformed += 1;
                    let client = digest.socket_digest.as_ref().and_then(|d| d.peer_addr().cloned());
                    let client = client.and_then(|address| address.as_inet().map(|a| a.ip()));
                    let mut visit = Visit::default();
                    visit.common.request_id = self.gate.state().ids.next();
                    self.gate.record_refusal(&Refusal::BadRequest, &mut visit, client);
                    if malformed > MALFORMED {
                        return;
                    }
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn spawn(
        self: &Arc<Self>,
        stream: HttpSession,
        active: Active,
        talk: Arc<Meter>,
        shutdown: &ShutdownWatch,
    ) {
        let (door, shutdown) = (Arc::clone(self), shutdown.clone());
        let request = self.traffic.begin();
        tokio::spawn(async move {
            let _alive: (Active, Counted) = (active, request);
            let mut session = ServerSession::new_http2(stream);
            session.set_write_timeout(Some(door.options.write_timeout));
            session.set_total_drain_timeout(Some(door.options.header_timeout));
            let has_body = !session.is_body_done();
            let header = session.req_header();
            match check_http2(header, has_body, &door.options.sizes) {
                Ok(()) => {
                    door.proxy.process_new_http(session, &shutdown).await;
                }
                Err(refusal) => door.refuse_stream(session, &refusal).await,
            }
            if has_body {
                talk.forgive_window();
            }
        });
    }

    /// Answers what is no request of ours; the connection and its other streams go on.
    async fn refuse_stream(&self, mut session: ServerSession, refusal: &Refusal) {
        let mut visit = Visit::default();
        visit.common = Common { request_id: self.gate.state().ids.next(), ..Common::default() };
        let client = session.client_addr().and_then(|a| a.as_inet()).map(|a| a.ip());
        let header = Box::new(Reply::refusal(refusal).header(&visit.common));
        // A client that reset its stream has nobody to tell.
        let _ = session.write_response_header(header).await;
        let _ = session.write_response_body(Bytes::from(refusal.body()), true).await;
        self.gate.record_refusal(refusal, &mut visit, client);
        request_body::discard(&mut session).await;
    }
}
