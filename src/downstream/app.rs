//! The server app of a listener: who may connect, and what a connection begins with.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Buf;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::listeners::tls::Acceptor;
use pingora_core::protocols::{ALPN, Stream};
use pingora_core::server::ShutdownWatch;
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::time::{Instant, timeout_at};

use super::boxed::boxed;
use super::client_io::ClientIo;
use super::connection_tracker::ConnectionTracker;
use super::context::{ConnectionContext, ExchangeUpstreams};
use super::http1::Http1;
use super::http2::serve_http2;
use super::idle_wait::IdleWait;
use super::options::DownstreamOptions;
use super::preamble::{ProxyHeader, is_http2_preface, parse_proxy_header};
use crate::gate::Gate;
use crate::model::network::Networks;

/// The server app of one listener: takes its connections in place of [`HttpProxy`] and hands
/// requests on to it.
pub struct DownstreamApp<P> {
    proxy: Arc<HttpProxy<P>>,
    context: Arc<ConnectionContext>,
    tls: Option<Acceptor>,
}

impl<P> DownstreamApp<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// A door in front of `proxy`; `gate` counts and logs what is refused here.
    pub fn new(
        proxy: Arc<HttpProxy<P>>,
        gate: Gate,
        options: DownstreamOptions,
        traffic: Arc<ConnectionTracker>,
    ) -> DownstreamApp<P> {
        traffic.add_listener();
        let context = Arc::new(ConnectionContext { gate, options, traffic, upstreams: None });
        DownstreamApp { proxy, context, tls: None }
    }

    /// The same in front of which TLS is spoken.
    pub fn with_tls(mut self, tls: Acceptor) -> DownstreamApp<P> {
        self.tls = Some(tls);
        self
    }

    /// The same of which the lane asks these servers itself; else what crosses is handed over.
    pub fn with_upstreams(mut self, servers: ExchangeUpstreams) -> DownstreamApp<P> {
        Arc::make_mut(&mut self.context).upstreams = Some(servers);
        self
    }

    /// What comes before the first request: who is there, TLS, and which HTTP it is.
    async fn serve_connection(
        self: &Arc<Self>,
        mut client_io: Box<ClientIo>,
        shutdown: &ShutdownWatch,
    ) -> Option<()> {
        let accepted = Instant::now();
        let deadline = accepted + self.context.options.header_timeout;
        let mut idle_wait = IdleWait::new(deadline, shutdown);
        let has_preamble = self.context.options.proxy_protocol.is_some()
            || self.tls.is_some()
            || self.context.options.h2c;
        if has_preamble
            && !idle_wait
                .await_bytes(&mut client_io, &self.context.traffic, accepted, deadline)
                .await
        {
            return None;
        }
        if let Some(proxies) = &self.context.options.proxy_protocol {
            self.receive_proxy_header(&mut client_io, proxies, deadline).await?;
        }
        let client = client_io.client_address();
        let _address_permit = match client {
            Some(address) => Some(
                self.context.traffic.track_address(address).or_else(|| self.refuse_connection())?,
            ),
            None => None,
        };
        if let Some(tls) = &self.tls {
            let stream = boxed(|| self.handshake_tls(tls, *client_io, deadline)).await?;
            if stream.selected_alpn_proto() == Some(ALPN::H2) {
                boxed(|| {
                    serve_http2(&self.proxy, &self.context, ClientIo::from_stream(stream), shutdown)
                })
                .await;
                return Some(());
            }
            client_io = Box::new(ClientIo::from_stream(stream));
        } else if self.context.options.h2c && detect_http2(&mut client_io, deadline).await? {
            boxed(|| serve_http2(&self.proxy, &self.context, *client_io, shutdown)).await;
            return Some(());
        }
        let http1 = Http1 { proxy: &self.proxy, context: &self.context };
        http1.serve_http1(client_io, idle_wait, shutdown, deadline).await;
        Some(())
    }

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

    /// Reads whom the peer speaks for. From a proxy that is not trusted, or that does not say it,
    /// nothing is taken.
    async fn receive_proxy_header(
        &self,
        client_io: &mut ClientIo,
        proxies: &Networks,
        deadline: Instant,
    ) -> Option<()> {
        let trusted = client_io.client_address().is_some_and(|peer| proxies.contains(peer));
        if !trusted {
            return self.refuse_connection();
        }
        loop {
            match parse_proxy_header(&client_io.read_buf) {
                ProxyHeader::Complete(length, client) => {
                    client_io.read_buf.advance(length);
                    client_io.set_proxied_addr(client);
                    return Some(());
                }
                ProxyHeader::Partial if client_io.read_more(deadline).await => {}
                ProxyHeader::Partial | ProxyHeader::Malformed => return self.refuse_connection(),
            }
        }
    }

    /// Counts a connection that is closed before anything is read from it.
    fn refuse_connection<T>(&self) -> Option<T> {
        self.context.gate.state().metrics.connections.connections_rejected.inc();
        None
    }
}

/// Whether the connection begins with HTTP/2's preface; nothing if it ends before that is known.
async fn detect_http2(client_io: &mut ClientIo, deadline: Instant) -> Option<bool> {
    loop {
        match is_http2_preface(&client_io.read_buf) {
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
            self.context.traffic.track_connection().or_else(|| self.refuse_connection())?;
        // Only wires are given to a door. Whoever was not welcome is gone: nobody is to be told.
        let client_io = stream.into_any().downcast::<ClientIo>().ok();
        if let Some(client_io) = client_io {
            let _ = self.serve_connection(client_io, shutdown).await;
        }
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
        self.context.traffic.remove_listener();
    }
}
