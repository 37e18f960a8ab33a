//! The connection: our own thin server app in front of Pingora's HTTP proxy.
//!
//! Owns what Pingora leaves open: who may connect, what a connection begins with, deadlines,
//! sizes, the grammar of what comes in, and the count of what is in flight. It hands on
//! well-formed requests and knows no key, route or table.

mod client_io;
mod connection_tracker;
mod exchange;
pub mod fast_path;
mod http1;
mod http2;
mod idle_wait;
pub mod preamble;
mod requests;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Buf;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::listeners::tls::Acceptor;
use pingora_core::protocols::{ALPN, Stream};
use pingora_core::server::ShutdownWatch;
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::time::{Instant, timeout_at};

use crate::gate::Gate;
use crate::message::request_head::Sizes;
use crate::model::network::Networks;

pub use client_io::Wire;
pub use connection_tracker::{Caps, Traffic};
pub use exchange::Servers;
use idle_wait::Silence;
use preamble::{ProxyHeader, is_preface, read_proxy_header};

/// Time and number at the door.
#[derive(Clone, Debug)]
pub struct DoorOptions {
    /// For a whole request header, from its first byte to its last; for a TLS handshake and a
    /// PROXY header too.
    pub header_timeout: Duration,
    /// For the next request on a connection to begin.
    pub keepalive_timeout: Duration,
    /// For a part of an answer to be taken by the client.
    pub write_timeout: Duration,
    /// Requests at the same time on one HTTP/2 connection.
    pub max_streams: u32,
    /// Sizes of what comes in.
    pub sizes: Sizes,
    /// Whether plain requests are answered on the short way.
    pub lane: bool,
    /// Whether HTTP/2 is spoken without TLS too, by prior knowledge.
    pub h2c: bool,
    /// The proxies of which every connection begins with a PROXY header; others are refused.
    pub proxy_protocol: Option<Networks>,
}

/// The server app of one listener: takes its connections in place of [`HttpProxy`] and hands
/// requests on to it.
pub struct Door<P> {
    proxy: Arc<HttpProxy<P>>,
    gate: Gate,
    options: DoorOptions,
    traffic: Arc<Traffic>,
    tls: Option<Acceptor>,
    servers: Option<Servers>,
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
        Door { proxy, gate, options, traffic, tls: None, servers: None }
    }

    /// The same in front of which TLS is spoken.
    pub fn with_tls(mut self, tls: Acceptor) -> Door<P> {
        self.tls = Some(tls);
        self
    }

    /// The same of which the lane asks these servers itself; else what crosses is handed over.
    pub fn with_servers(mut self, servers: Servers) -> Door<P> {
        self.servers = Some(servers);
        self
    }

    /// What comes before the first request: who is there, TLS, and which HTTP it is.
    async fn welcome(
        self: &Arc<Self>,
        mut wire: Box<Wire>,
        shutdown: &ShutdownWatch,
    ) -> Option<()> {
        let accepted = Instant::now();
        let deadline = accepted + self.options.header_timeout;
        let mut silence = Silence::new(deadline, shutdown);
        let begins_otherwise =
            self.options.proxy_protocol.is_some() || self.tls.is_some() || self.options.h2c;
        if begins_otherwise && !self.await_bytes(&mut wire, &mut silence, accepted, deadline).await
        {
            return None;
        }
        if let Some(proxies) = &self.options.proxy_protocol {
            self.hear_proxy(&mut wire, proxies, deadline).await?;
        }
        let client = wire.client_address();
        let _neighbour = match client {
            Some(address) => Some(self.traffic.connect_from(address).or_else(|| self.turn_away())?),
            None => None,
        };
        if let Some(tls) = &self.tls {
            let stream = apart(|| self.shake_hands(tls, *wire, deadline)).await?;
            if stream.selected_alpn_proto() == Some(ALPN::H2) {
                apart(|| self.serve_http2(Wire::over(stream), shutdown)).await;
                return Some(());
            }
            wire = Box::new(Wire::over(stream));
        } else if self.options.h2c && hear_preface(&mut wire, deadline).await? {
            apart(|| self.serve_http2(*wire, shutdown)).await;
            return Some(());
        }
        self.serve_http1(wire, silence, shutdown, deadline).await;
        Some(())
    }

    async fn shake_hands(&self, tls: &Acceptor, wire: Wire, deadline: Instant) -> Option<Stream> {
        if let Ok(Ok(stream)) = timeout_at(deadline, tls.tls_handshake(wire)).await {
            return Some(Box::new(stream));
        }
        self.gate.state().metrics.handshakes_failed.inc();
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
        self.gate.state().metrics.connections_refused.inc();
        None
    }
}

/// In a place of its own, as all that few connections need: the others hold no room for it. It is
/// made by a function, since what moves through an async one has its room there all the same.
fn apart<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::pin(make())
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
        let _connection = self.traffic.connect().or_else(|| self.turn_away())?;
        // Only wires are given to a door. Whoever was not welcome is gone: nobody is to be told.
        let wire = stream.into_any().downcast::<Wire>().ok();
        if let Some(wire) = wire {
            let _ = self.welcome(wire, shutdown).await;
        }
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
        self.traffic.listener_closed();
    }
}
