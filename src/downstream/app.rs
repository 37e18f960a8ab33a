//! The server app of a listener: connection limits, and the preamble of a connection.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Buf;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::listeners::tls::Acceptor;
use pingora::protocols::{ALPN, Stream};
use pingora::server::ShutdownWatch;
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::time::{Instant, timeout_at};

use super::boxed::box_future;
use super::client_io::ClientIo;
use super::connection_tracker::ConnectionTracker;
use super::context::ListenerContext;
use super::http1::Http1Server;
use super::http2::serve_http2;
use super::idle_wait::{IdleWait, finish_unless_shutdown};
use super::options::DownstreamOptions;
use super::preamble::{ProxyHeader, parse_proxy_header, starts_with_http2_preface};
use super::redirect::redirect_to_https;
use crate::gate::Gate;
use crate::model::network::Networks;
use crate::proxy::upstream::Upstreams;
use crate::support::log_interval::LogInterval;
use crate::support::per_client_limit::PerClientGuard;

/// The server app of one listener. It serves the listener's connections in place of [`HttpProxy`],
/// and passes requests to the `HttpProxy` unless the fast path serves them.
pub struct DownstreamApp<P> {
    proxy: Arc<HttpProxy<P>>,
    context: Arc<ListenerContext>,
    tls: Option<Acceptor>,
    /// The port to which the app sends all clients; `None` if it serves them itself.
    redirect_port: Option<u16>,
    proxy_header_log: LogInterval,
}

impl<P> DownstreamApp<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// Creates an app in front of `proxy`. Requests that the app refuses are counted and logged by
    /// `gate`. The fast path forwards requests to `upstreams`. The listener counts in `tracker`
    /// until [`ServerApp::cleanup`].
    pub fn new(
        proxy: Arc<HttpProxy<P>>,
        gate: Gate,
        upstreams: Arc<Upstreams>,
        options: DownstreamOptions,
        tracker: Arc<ConnectionTracker>,
    ) -> DownstreamApp<P> {
        tracker.add_listener();
        let context = Arc::new(ListenerContext { gate, options, tracker, upstreams });
        let proxy_header_log = LogInterval::default();
        DownstreamApp { proxy, context, tls: None, redirect_port: None, proxy_header_log }
    }

    /// Makes the app redirect each client to HTTPS at this port, and serve nothing else.
    pub fn with_https_redirect(mut self, https_port: u16) -> DownstreamApp<P> {
        self.redirect_port = Some(https_port);
        self
    }

    /// Makes the app accept only TLS connections.
    pub fn with_tls(mut self, tls: Acceptor) -> DownstreamApp<P> {
        self.tls = Some(tls);
        self
    }

    /// Handles the preamble (PROXY header, TLS, HTTP/2 preface) and then the requests of a
    /// connection. Returns `None` if the connection ended or was refused during the preamble.
    async fn serve_connection(
        self: &Arc<Self>,
        mut client_io: Box<ClientIo>,
        shutdown: &ShutdownWatch,
    ) -> Option<()> {
        let proxies = self.context.options.proxy_protocol_peers.as_ref();
        if let Some(proxies) = proxies {
            self.refuse_unless_trusted(&client_io, proxies)?;
        }
        // A connection counts for its client before it sends a byte. With the PROXY protocol, the
        // client is known only after the PROXY header.
        let mut _address_guard = match proxies {
            None => self.track_client(&client_io)?,
            Some(_) => None,
        };
        let accepted = Instant::now();
        let deadline = accepted + self.context.options.header_timeout;
        let mut idle_wait = IdleWait::new(deadline, shutdown);
        let has_preamble = proxies.is_some()
            || self.tls.is_some()
            || self.redirect_port.is_some()
            || self.context.options.accepts_h2c;
        if has_preamble
            && !idle_wait
                .wait_for_request_bytes(&mut client_io, &self.context.tracker, accepted, deadline)
                .await
        {
            return None;
        }
        if proxies.is_some() {
            let header = self.receive_proxy_header(&mut client_io, deadline);
            finish_unless_shutdown(shutdown, &self.context.tracker, header).await??;
            _address_guard = self.track_client(&client_io)?;
        }
        if let Some(https_port) = self.redirect_port {
            redirect_to_https(&self.context, client_io, https_port, deadline, shutdown).await;
            return Some(());
        }
        if let Some(tls) = &self.tls {
            let handshake = box_future(|| self.handshake_tls(tls, *client_io, deadline));
            let stream =
                finish_unless_shutdown(shutdown, &self.context.tracker, handshake).await??;
            if stream.selected_alpn_proto() == Some(ALPN::H2) {
                box_future(|| {
                    serve_http2(
                        &self.proxy,
                        &self.context,
                        ClientIo::from_pingora_stream(stream),
                        shutdown,
                    )
                })
                .await;
                return Some(());
            }
            client_io = Box::new(ClientIo::from_pingora_stream(stream));
        } else if self.context.options.accepts_h2c
            && self.expect_http2_preface(&mut client_io, deadline, shutdown).await?
        {
            box_future(|| serve_http2(&self.proxy, &self.context, *client_io, shutdown)).await;
            return Some(());
        }
        let http1 = Http1Server { proxy: &self.proxy, context: &self.context };
        http1.serve_http1(client_io, idle_wait, shutdown, deadline).await;
        Some(())
    }

    /// Counts the connection for its client until the guard is dropped. Returns `None`, and counts
    /// a refused connection, if the client has too many connections. Returns `Some(None)` if the
    /// client has no known address.
    fn track_client(&self, client_io: &ClientIo) -> Option<Option<PerClientGuard>> {
        let Some(address) = client_io.peer_address() else { return Some(None) };
        let guard = self.context.tracker.track_connection_from(address);
        guard.map(Some).or_else(|| self.count_refused_connection())
    }

    /// Returns the TLS stream; `None` if the handshake failed or was not complete by `deadline`.
    async fn handshake_tls(
        &self,
        tls: &Acceptor,
        client_io: ClientIo,
        deadline: Instant,
    ) -> Option<Stream> {
        if let Ok(Ok(stream)) = timeout_at(deadline, tls.tls_handshake(client_io)).await {
            return Some(Box::new(stream));
        }
        self.context.gate.state().metrics.connections.tls_handshake_failures.inc();
        None
    }

    /// Does what [`detect_http2_preface`] does, and returns `None` as well if the process is about
    /// to end.
    async fn expect_http2_preface(
        &self,
        client_io: &mut ClientIo,
        deadline: Instant,
        shutdown: &ShutdownWatch,
    ) -> Option<bool> {
        let preface = detect_http2_preface(client_io, deadline);
        finish_unless_shutdown(shutdown, &self.context.tracker, preface).await?
    }

    /// Returns `None`, and counts a refused connection, if the peer is not a trusted proxy.
    fn refuse_unless_trusted(&self, client_io: &ClientIo, trusted: &Networks) -> Option<()> {
        match client_io.peer_address().is_some_and(|peer| trusted.contains(peer)) {
            true => Some(()),
            false => {
                self.refuse_without_proxy_header(client_io, "a peer that is not in trusted_proxies")
            }
        }
    }

    /// Reads the PROXY header, which names the client. Returns `None`, and counts a refused
    /// connection, if the peer sends no valid header by `deadline`.
    async fn receive_proxy_header(
        &self,
        client_io: &mut ClientIo,
        deadline: Instant,
    ) -> Option<()> {
        loop {
            match parse_proxy_header(&client_io.read_buf) {
                ProxyHeader::Complete(length, client) => {
                    client_io.read_buf.advance(length);
                    client_io.set_proxied_addr(client);
                    return Some(());
                }
                ProxyHeader::Partial if client_io.read_more(deadline).await => {}
                ProxyHeader::Partial => {
                    return self.refuse_without_proxy_header(client_io, "only a part of one");
                }
                ProxyHeader::Malformed => {
                    return self.refuse_without_proxy_header(client_io, "other bytes");
                }
            }
        }
    }

    /// Counts a connection that does not start with a PROXY header of a trusted proxy. Logs the
    /// connection, unless riskgate has just logged another. The caller closes the connection.
    /// Always returns `None`.
    fn refuse_without_proxy_header(&self, client_io: &ClientIo, found: &str) -> Option<()> {
        if self.proxy_header_log.begin_if_due() {
            let peer = client_io.peer_address();
            let peer = peer.map_or_else(|| "?".to_owned(), |peer| peer.to_canonical().to_string());
            log::warn!(
                "listen.proxy_protocol: expected that each connection starts with a PROXY header, \
                 but found {found} on one from {peer}: closed it"
            );
        }
        self.count_refused_connection()
    }

    /// Counts a refused connection, which the caller closes without a response. Always returns
    /// `None`.
    fn count_refused_connection<T>(&self) -> Option<T> {
        self.context.gate.state().metrics.connections.connections_rejected.inc();
        None
    }
}

/// Returns true if the connection starts with HTTP/2's preface; `None` if the connection ends, or
/// the deadline passes, before enough bytes have arrived.
async fn detect_http2_preface(client_io: &mut ClientIo, deadline: Instant) -> Option<bool> {
    loop {
        match starts_with_http2_preface(&client_io.read_buf) {
            Some(is_http2) => return Some(is_http2),
            None if client_io.read_more(deadline).await => {}
            None => return None,
        }
    }
}

#[async_trait]
impl<P> ServerApp for DownstreamApp<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let _connection =
            self.context.tracker.track_connection().or_else(|| self.count_refused_connection())?;
        // `ListenerService` passes only `ClientIo` streams, so the downcast succeeds. A connection
        // that `serve_connection` refuses closes without a response.
        let client_io = stream.into_any().downcast::<ClientIo>().ok();
        if let Some(client_io) = client_io {
            let _ = self.serve_connection(client_io, shutdown).await;
        }
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
        self.context.tracker.remove_listener();
    }
}
