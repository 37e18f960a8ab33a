//! Mounts riskgate's gates in a Pingora proxy of somebody else.
//!
//! The proxy keeps its own context, its own upstream and its own routes; riskgate answers and
//! guards what is its to answer and guard. Two lines do it: a [`riskgate::Visit`] in the context,
//! and one call in `request_filter`; a third, in `logging`, adds metrics and the access log.
//!
//! `mount LISTEN UPSTREAM CONFIG` runs it; make a key with `riskgate keys create -c CONFIG`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, Result};
use pingora_http::RequestHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use riskgate::config::{ConfigFile, Overrides};
use riskgate::server::Mount;
use riskgate::{Gate, Visit};

struct TheirProxy {
    gate: Gate,
    upstream: SocketAddr,
}

#[derive(Default)]
struct TheirContext {
    /// Theirs.
    seen: usize,
    /// Ours: the first line.
    gate: Visit,
}

#[async_trait]
impl ProxyHttp for TheirProxy {
    type CTX = TheirContext;

    fn new_ctx(&self) -> TheirContext {
        TheirContext::default()
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut TheirContext) -> Result<bool> {
        ctx.seen += 1;
        // The second line: `true` means that riskgate has answered.
        self.gate.request_filter(session, &mut ctx.gate).await
    }

    async fn upstream_peer(
        &self,
        _session: &mut Session,
        _ctx: &mut TheirContext,
    ) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut TheirContext,
    ) -> Result<()> {
        // The canonical target, and never the key.
        if let Some(target) = ctx.gate.forward() {
            request.set_raw_path(target)?;
        }
        request.remove_header("authorization");
        request.insert_header("X-Seen", ctx.seen.to_string())
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut TheirContext) {
        self.gate.logging(session, error, &mut ctx.gate);
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or(format!("expected {what}"));
    let listen: SocketAddr = next("LISTEN")?.parse()?;
    let upstream: SocketAddr = next("UPSTREAM")?.parse()?;
    let file = ConfigFile::At(PathBuf::from(next("CONFIG")?));

    let mount = Mount::new(Overrides { file, flags: Vec::new() })?;
    let gate = mount.gate();
    let their_proxy = TheirProxy { gate: gate.clone(), upstream };

    let conf = ServerConf { grace_period_seconds: Some(0), ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&Arc::clone(&server.configuration), their_proxy);
    service.add_tcp(&listen.to_string());
    server.add_service(service);
    // Keeps table and keys fresh, as the gateway itself does.
    server.add_service(mount.into_service());
    server.run(RunArgs::default());
    gate.close();
    Ok(())
}
