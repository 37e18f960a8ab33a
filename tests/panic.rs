//! A panic in a request costs its connection (over HTTP/2 its stream) and a metric, nothing else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::Result;
use pingora_core::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
use pingora_core::upstreams::peer::HttpPeer;
use pingora_error::{Error, ErrorType};
use pingora_proxy::{ProxyHttp, Session, http_proxy};
use riskgate::config::{Config, ConfigFile, Overrides};
use riskgate::downstream::{Door, Traffic};
use riskgate::process::listener::{self, Listening};
use riskgate::process::server::{Mount, count_panics};
use riskgate::{Gate, Visit};

/// The gates, with a fault behind one path.
struct Faulty {
    gate: Gate,
}

#[async_trait]
impl ProxyHttp for Faulty {
    type CTX = Visit;

    fn new_ctx(&self) -> Visit {
        Visit::default()
    }

    async fn request_filter(&self, session: &mut Session, visit: &mut Visit) -> Result<bool> {
        assert!(!session.req_header().raw_path().starts_with(b"/fault"), "a fault on purpose");
        self.gate.request_filter(session, visit).await
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Visit) -> Result<Box<HttpPeer>> {
        Error::e_explain(ErrorType::InternalError, "there is no upstream")
    }
}

struct Never;

#[async_trait]
impl ShutdownSignalWatch for Never {
    async fn recv(&self) -> ShutdownSignal {
        std::future::pending().await
    }
}

fn ask(stream: &mut TcpStream, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    // Every answer here ends with its JSON body.
    while !answer.ends_with('}') {
        match stream.read(&mut bytes) {
            Ok(read @ 1..) => answer.push_str(&String::from_utf8_lossy(&bytes[..read])),
            _ => break,
        }
    }
    answer
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

#[test]
fn a_panic_costs_one_connection_and_a_metric() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("riskgate.db").display());
    let flag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let overrides = Overrides {
        file: ConfigFile::Nowhere,
        flags: vec![flag("store.url", &store), flag("log.access", "false")],
    };
    let config = Config::read(&overrides).unwrap();
    let mount = Mount::new(overrides).unwrap();
    let gate = mount.gate();
    count_panics(gate.state());
    let traffic = Arc::new(Traffic::new(config.caps.clone()));
    let socket = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();

    let mut server = Server::new(None).unwrap();
    server.bootstrap();
    let proxy = Arc::new(http_proxy(&server.configuration, Faulty { gate: gate.clone() }));
    let door = Door::new(proxy, gate.clone(), config.door.clone(), Arc::clone(&traffic));
    server.add_service(Listening::new("http", socket, door, config.door.write_timeout));
    std::thread::spawn(move || server.run(RunArgs { shutdown_signal: Box::new(Never) }));

    let mut beside = connect(address);
    assert!(ask(&mut beside, "/v1/usage").starts_with("HTTP/1.1 401 "));
    for panics in 1..=3 {
        let mut unlucky = connect(address);
        assert!(ask(&mut unlucky, "/v1/usage").starts_with("HTTP/1.1 401 "));
        assert_eq!(ask(&mut unlucky, "/fault"), "", "the connection just ends");
        assert_eq!(gate.state().metrics.connections.panics.get(), panics);
        assert!(ask(&mut beside, "/v1/usage").starts_with("HTTP/1.1 401 "));
    }
    let begun = std::time::Instant::now();
    while (traffic.connections(), traffic.in_flight()) != (1, 0) {
        assert!(begun.elapsed() < Duration::from_secs(20), "what ended by a panic still counts");
        std::thread::sleep(Duration::from_millis(10));
    }
}
