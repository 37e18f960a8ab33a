//! A panic while riskgate serves an HTTP/1.1 request ends only the connection of that request, and
//! a metric counts it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riskgate::config::{Config, ConfigFile, ConfigSources};
use riskgate::downstream::{ConnectionTracker, DownstreamApp};
use riskgate::pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
use riskgate::pingora::upstreams::peer::HttpPeer;
use riskgate::pingora::{Error, ErrorType, Result};
use riskgate::pingora_proxy::{ProxyHttp, Session, http_proxy};
use riskgate::process::listener::{self, ListenerService};
use riskgate::process::server::{create_upstreams, install_panic_hook};
use riskgate::{Gate, Mount, RequestContext};

/// A proxy with the gates that panics on the path `/fault`.
struct PanickingProxy {
    gate: Gate,
}

#[async_trait]
impl ProxyHttp for PanickingProxy {
    type CTX = RequestContext;

    fn new_ctx(&self) -> RequestContext {
        RequestContext::default()
    }

    async fn request_filter(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        assert!(!session.req_header().raw_path().starts_with(b"/fault"), "a fault on purpose");
        self.gate.request_filter(session, ctx).await
    }

    async fn upstream_peer(
        &self,
        _: &mut Session,
        _: &mut RequestContext,
    ) -> Result<Box<HttpPeer>> {
        Error::e_explain(ErrorType::InternalError, "there is no upstream")
    }
}

struct NeverShutdown;

#[async_trait]
impl ShutdownSignalWatch for NeverShutdown {
    async fn recv(&self) -> ShutdownSignal {
        std::future::pending().await
    }
}

fn send_get(stream: &mut TcpStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (mut response, mut bytes) = (String::new(), [0; 4096]);
    // Every response in this test ends with a JSON body.
    while !response.ends_with('}') {
        match stream.read(&mut bytes) {
            Ok(read @ 1..) => response.push_str(&String::from_utf8_lossy(&bytes[..read])),
            _ => break,
        }
    }
    response
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

#[test]
fn a_panic_ends_only_its_connection_and_is_counted_in_a_metric() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("riskgate.db").display());
    let file = folder.path().join("riskgate.toml");
    let text = format!("[store]\nurl = \"{store}\"\n[log]\naccess = false\n");
    std::fs::write(&file, text).unwrap();
    let mount = Mount::from_config_file(&file).unwrap();
    let file = ConfigFile::Path(file);
    let config = Config::read(&ConfigSources { file, flags: Vec::new() }).unwrap();
    let gate = mount.gate();
    install_panic_hook(gate.state());
    let tracker = Arc::new(ConnectionTracker::new(config.startup.connection_limits.clone()));
    let socket = listener::bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();

    let mut server = Server::new(None).unwrap();
    server.bootstrap();
    let proxy = Arc::new(http_proxy(&server.configuration, PanickingProxy { gate: gate.clone() }));
    let app = DownstreamApp::new(
        proxy,
        gate.clone(),
        create_upstreams(&config).unwrap(),
        config.startup.downstream.clone(),
        Arc::clone(&tracker),
    );
    server.add_service(ListenerService::new(
        "http",
        socket,
        app,
        config.startup.downstream.write_timeout,
    ));
    std::thread::spawn(move || server.run(RunArgs { shutdown_signal: Box::new(NeverShutdown) }));

    let mut other_connection = connect(address);
    assert!(send_get(&mut other_connection, "/v1/usage").starts_with("HTTP/1.1 401 "));
    for panics in 1..=3 {
        let mut failing_connection = connect(address);
        assert!(send_get(&mut failing_connection, "/v1/usage").starts_with("HTTP/1.1 401 "));
        assert_eq!(send_get(&mut failing_connection, "/fault"), "", "the connection just ends");
        assert_eq!(gate.state().metrics.connections.panics.get(), panics);
        assert!(send_get(&mut other_connection, "/v1/usage").starts_with("HTTP/1.1 401 "));
    }
    let started = std::time::Instant::now();
    while (tracker.count_open_connections(), tracker.count_requests_in_flight()) != (1, 0) {
        assert!(started.elapsed() < Duration::from_secs(20), "a panicked connection still counts");
        std::thread::sleep(Duration::from_millis(10));
    }
}
