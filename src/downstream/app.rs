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

use super::boxed::apart;
use super::client_io::Wire;
use super::connection_tracker::Traffic;
use super::context::{ConnectionContext, Servers};
use super::http1::Http1;
use super::http2::serve_http2;
use super::idle_wait::Silence;
use super::options::DoorOptions;
use super::preamble::{ProxyHeader, is_preface, read_proxy_header};
use crate::gate::Gate;
use crate::model::network::Networks;

/// The server app of one listener: takes its connections in place of [`HttpProxy`] and hands
/// requests on to it.
pub struct Door<P> {
    proxy: Arc<HttpProxy<P>>,
    context: Arc<ConnectionContext>,
    tls: Option<Acceptor>,
}

impl<P> Door<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// A door in front of `proxy`; `gate` counts and logs what is refused here.
    pub fn new(
        proxy: Arc<HttpProxy<P>>,
        gate: Gate,
        options: DoorOptions,
        traffic: Arc<Traffic>,
    ) -> Door<P> {
        traffic.listener_opened();
        let context = Arc::new(ConnectionContext { gate, options, traffic, servers: None });
        Door { proxy, context, tls: None }
    }

    /// The same in front of which TLS is spoken.
    pub fn with_tls(mut self, tls: Acceptor) -> Door<P> {
        self.tls = Some(tls);
        self
    }

    /// The same of which the lane asks these servers itself; else what crosses is handed over.
    pub fn with_servers(mut self, servers: Servers) -> Door<P> {
        Arc::make_mut(&mut self.context).servers = Some(servers);
        self
    }

    /// What comes before the first request: who is there, TLS, and which HTTP it is.
    async fn welcome(
        self: &Arc<Self>,
        mut wire: Box<Wire>,
        shutdown: &ShutdownWatch,
    ) -> Option<()> {
        let accepted = Instant::now();
        let deadline = accepted + self.context.options.header_timeout;
        let mut silence = Silence::new(deadline, shutdown);
        let begins_otherwise = self.context.options.proxy_protocol.is_some()
            || self.tls.is_some()
            || self.context.options.h2c;
        if begins_otherwise
            && !silence.await_bytes(&mut wire, &self.context.traffic, accepted, deadline).await
        {
            return None;
        }
        if let Some(proxies) = &self.context.options.proxy_protocol {
            self.hear_proxy(&mut wire, proxies, deadline).await?;
        }
        let client = wire.client_address();
        let _neighbour = match client {
            Some(address) => {
                Some(self.context.traffic.connect_from(address).or_else(|| self.turn_away())?)
            }
            None => None,
        };
        if let Some(tls) = &self.tls {
            let stream = apart(|| self.shake_hands(tls, *wire, deadline)).await?;
            if stream.selected_alpn_proto() == Some(ALPN::H2) {
                apart(|| serve_http2(&self.proxy, &self.context, Wire::over(stream), shutdown))
                    .await;
                return Some(());
            }
            wire = Box::new(Wire::over(stream));
        } else if self.context.options.h2c && hear_preface(&mut wire, deadline).await? {
            apart(|| serve_http2(&self.proxy, &self.context, *wire, shutdown)).await;
            return Some(());
        }
        let http1 = Http1 { proxy: &self.proxy, context: &self.context };
        http1.serve_http1(wire, silence, shutdown, deadline).await;
        Some(())
    }

    async fn shake_hands(&self, tls: &Acceptor, wire: Wire, deadline: Instant) -> Option<Stream> {
        if let Ok(Ok(stream)) = timeout_at(deadline, tls.tls_handshake(wire)).await {
            return Some(Box::new(stream));
        }
        self.context.gate.state().metrics.connections.handshakes_failed.inc();
        None
    }

    /// Reads whom the peer speaks for. From a proxy that is not trusted, or that does not say it,
    /// nothing is taken.
    async fn hear_proxy(
        &self,
        wire: &mut Wire,
        proxies: &Networks,
        deadline: Instant,
    ) -> Option<()> {
        let trusted = wire.client_address().is_some_and(|peer| proxies.contains(peer));
        if !trusted {
            return self.turn_away();
        }
        loop {
            match read_proxy_header(&wire.ahead) {
                ProxyHeader::Whole(length, client) => {
                    wire.ahead.advance(length);
                    wire.speaks_for(client);
                    return Some(());
                }
                ProxyHeader::Partial if wire.read_more(deadline).await => {}
                ProxyHeader::Partial | ProxyHeader::Malformed => return self.turn_away(),
            }
        }
    }

    /// Counts a connection that is closed before anything is read from it.
    fn turn_away<T>(&self) -> Option<T> {
        self.context.gate.state().metrics.connections.connections_refused.inc();
        None
    }
}

/// Whether the connection begins with HTTP/2's preface; nothing if it ends before that is known.
async fn hear_preface(wire: &mut Wire, deadline: Instant) -> Option<bool> {
    loop {
        match is_preface(&wire.ahead) {
            Some(is_http2) => return Some(is_http2),
            None if wire.read_more(deadline).await => {}
            None => return None,
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
        let _connection = self.context.traffic.connect().or_else(|| self.turn_away())?;
        // Only wires are given to a door. Whoever was not welcome is gone: nobody is to be told.
        let wire = stream.into_any().downcast::<Wire>().ok();
        if let Some(wire) = wire {
            let _ = self.welcome(wire, shutdown).await;
        }
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
        self.context.traffic.listener_closed();
    }
}
