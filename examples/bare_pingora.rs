//! A proxy of bare Pingora, as its guide shows: it forwards every request to one server.
//!
//! `scripts/bench mounted` compares it with the example `mount`, so that one sees what riskgate's
//! gates add. Run `bare_pingora LISTEN UPSTREAM`.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use riskgate::pingora::Result;
use riskgate::pingora::server::configuration::ServerConf;
use riskgate::pingora::server::{RunArgs, Server};
use riskgate::pingora::upstreams::peer::HttpPeer;
use riskgate::pingora_proxy::{ProxyHttp, Session, http_proxy_service};

struct BareProxy {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for BareProxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next_argument = |name: &str| arguments.next().ok_or(format!("expected {name}"));
    let listen: SocketAddr = next_argument("LISTEN")?.parse()?;
    let upstream: SocketAddr = next_argument("UPSTREAM")?.parse()?;
    let conf = ServerConf { grace_period_seconds: Some(0), ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service =
        http_proxy_service(&Arc::clone(&server.configuration), BareProxy { upstream });
    service.add_tcp(&listen.to_string());
    server.add_service(service);
    server.run(RunArgs::default());
    Ok(())
}
