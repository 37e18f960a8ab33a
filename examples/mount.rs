//! Mounts riskgate's gates in your own Pingora proxy.
//!
//! Your proxy keeps its own context and its own upstream server. It holds a
//! [`riskgate::RequestContext`] in its context and calls riskgate in six filters: to judge a
//! request and screen its form, to prepare the upstream request, to pass its body on, to prepare
//! the client's response, to answer if the upstream server fails, and to count and log the request.
//!
//! Three more methods keep e-mail addresses out of what Pingora logs.
//!
//! Create a key with `riskgate keys create --account NAME -c CONFIG`, then run `mount LISTEN
//! UPSTREAM CONFIG`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use riskgate::pingora::http::{RequestHeader, ResponseHeader};
use riskgate::pingora::server::configuration::ServerConf;
use riskgate::pingora::server::{RunArgs, Server};
use riskgate::pingora::upstreams::peer::HttpPeer;
use riskgate::pingora::{Error, Result};
use riskgate::pingora_proxy::{
    FailToProxy, ProxyHttp, ProxyWarnLogContext, Session, http_proxy_service,
};
use riskgate::{Gate, Mount, RequestContext};

struct MyProxy {
    gate: Gate,
    upstream: SocketAddr,
    /// The value of `Host` for the upstream server.
    upstream_host: String,
}

#[derive(Default)]
struct MyContext {
    /// Your own state, as an example: how often `request_filter` ran for this request.
    request_filter_runs: usize,
    /// riskgate's state of the request.
    riskgate: RequestContext,
}

#[async_trait]
impl ProxyHttp for MyProxy {
    type CTX = MyContext;

    fn new_ctx(&self) -> MyContext {
        MyContext::default()
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut MyContext) -> Result<bool> {
        ctx.request_filter_runs += 1;
        // True means that riskgate has answered the request.
        self.gate.request_filter(session, &mut ctx.riskgate).await
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        _ctx: &mut MyContext,
    ) -> Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new(self.upstream, false, String::new());
        // You choose the timeouts.
        peer.options.connection_timeout = Some(Duration::from_millis(500));
        // The time in which the client sends its body counts for this timeout, so a short one would
        // punish slow clients, and would count their calls: your server seems to be late.
        let has_body = !session.as_downstream_mut().is_body_empty();
        peer.options.read_timeout = Some(Duration::from_secs(if has_body { 60 } else { 2 }));
        Ok(Box::new(peer))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut MyContext,
    ) -> Result<()> {
        let host = &self.upstream_host;
        self.gate.upstream_request_filter(session, request, &ctx.riskgate, host)?;
        // Add your own fields after riskgate's filter.
        request.insert_header("X-Seen", ctx.request_filter_runs.to_string())
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut MyContext,
    ) -> Result<()> {
        self.gate.request_body_filter(body, end_of_stream, &mut ctx.riskgate)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut MyContext,
    ) -> Result<()> {
        self.gate.response_filter(session, response, &mut ctx.riskgate)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut MyContext,
    ) -> FailToProxy {
        self.gate.fail_to_proxy(session, error, &mut ctx.riskgate).await
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut MyContext) {
        self.gate.logging(session, error, &mut ctx.riskgate);
    }

    // Pingora's own texts about a request contain its path and query, and so the e-mail address of
    // a check, and parts of malformed bodies. The gate logs what failed, with the request's id.

    fn suppress_error_log(&self, _: &Session, _: &MyContext, _: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _: &Session,
        _: &MyContext,
        _: &Error,
        _: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    fn request_summary(&self, _: &Session, ctx: &MyContext) -> String {
        ctx.riskgate.request_id().to_owned()
    }
}

/// Writes what riskgate and Pingora log to standard error. Take the logger of your program instead.
struct StandardErrorLog;

impl log::Log for StandardErrorLog {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("{}: {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    log::set_logger(&StandardErrorLog).map(|()| log::set_max_level(log::LevelFilter::Warn))?;
    let mut arguments = std::env::args().skip(1);
    let mut next_argument = |name: &str| arguments.next().ok_or(format!("expected {name}"));
    let listen: SocketAddr = next_argument("LISTEN")?.parse()?;
    let upstream: SocketAddr = next_argument("UPSTREAM")?.parse()?;

    let mount = Mount::from_config_file(next_argument("CONFIG")?)?;
    let gate = mount.gate();
    let my_proxy = MyProxy { gate: gate.clone(), upstream, upstream_host: upstream.to_string() };

    let conf = ServerConf { grace_period_seconds: Some(0), ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&Arc::clone(&server.configuration), my_proxy);
    service.add_tcp(&listen.to_string());
    server.add_service(service);
    // Reloads the table and the keys, like the gateway.
    server.add_service(mount.into_reload_service());
    server.run(RunArgs::default());
    gate.close();
    Ok(())
}
