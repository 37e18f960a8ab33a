//! Tests the deadline of an exchange if Pingora runs `logging` late. By then Pingora may have given
//! the upstream connection to the next request, which the old deadline must not end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use riskgate::pingora::http::{RequestHeader, ResponseHeader};
use riskgate::pingora::protocols::Digest;
use riskgate::pingora::server::configuration::ServerConf;
use riskgate::pingora::server::{RunArgs, Server};
use riskgate::pingora::upstreams::peer::HttpPeer;
use riskgate::pingora::{Error, Result};
use riskgate::pingora_proxy::{FailToProxy, ProxyHttp, Session, http_proxy_service};
use riskgate::{Gateway, Mount, ProxyContext};

use crate::free_ports::free_address;

/// The deadline of an exchange; all other times in this test are fractions of it.
const EXCHANGE_DEADLINE: Duration = Duration::from_secs(4);

/// A gateway whose `logging` runs late, as on a busy thread.
struct LateLoggingProxy(Gateway);

#[async_trait]
impl ProxyHttp for LateLoggingProxy {
    type CTX = ProxyContext;

    fn new_ctx(&self) -> ProxyContext {
        self.0.new_ctx()
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut ProxyContext) -> Result<bool> {
        self.0.request_filter(session, ctx).await
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut ProxyContext,
    ) -> Result<Box<HttpPeer>> {
        self.0.upstream_peer(session, ctx).await
    }

    async fn connected_to_upstream(
        &self,
        session: &mut Session,
        reused: bool,
        peer: &HttpPeer,
        connection: RawFd,
        digest: Option<&Digest>,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        self.0.connected_to_upstream(session, reused, peer, connection, digest, ctx).await
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        self.0.request_body_filter(session, body, end, ctx).await
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        self.0.upstream_request_filter(session, request, ctx).await
    }

    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        session: &mut Session,
        error: Box<Error>,
        ctx: &mut ProxyContext,
        reused: bool,
    ) -> Box<Error> {
        self.0.error_while_proxy(peer, session, error, ctx, reused)
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        self.0.upstream_response_filter(session, response, ctx).await
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut ProxyContext,
    ) -> Result<()> {
        self.0.response_filter(session, response, ctx).await
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut ProxyContext,
    ) -> Result<Option<Duration>> {
        self.0.response_body_filter(session, body, end, ctx)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut ProxyContext,
    ) -> FailToProxy {
        self.0.fail_to_proxy(session, error, ctx).await
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut ProxyContext) {
        tokio::time::sleep(2 * EXCHANGE_DEADLINE).await;
        self.0.logging(session, error, ctx).await;
    }
}

/// Starts a server that answers at once with `response`, but answers a POST only after a delay.
fn spawn_upstream_server(response: &'static str, connections: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            connections.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                loop {
                    let mut header = String::new();
                    while !header.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut header).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let mut response = response;
                    if header.starts_with("POST") {
                        reader.read_exact(&mut [0; 4]).unwrap();
                        // The response comes after the deadline of the first exchange, and before
                        // the deadline of this exchange.
                        std::thread::sleep(EXCHANGE_DEADLINE / 2);
                        response = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast";
                    }
                    if reader.get_mut().write_all(response.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Starts the gateway in front of a server. Returns the address that it listens on.
fn spawn_gateway(folder: &std::path::Path, server: SocketAddr) -> SocketAddr {
    let config = folder.join("riskgate.toml");
    let text = format!(
        "[log]\naccess = false\n[store]\nurl = \"sqlite:{}\"\n[upstream]\nservers = [\"{server}\"]\n\
         health_interval = \"0\"\ndeadline = \"{}ms\"\n[[upstream.route]]\nprefix = \"/form\"\n\
         methods = [\"GET\", \"HEAD\", \"POST\"]\nkey = false\n",
        folder.join("riskgate.db").display(),
        EXCHANGE_DEADLINE.as_millis(),
    );
    std::fs::write(&config, text).unwrap();
    let gateway = Mount::from_config_file(config).unwrap().gateway().unwrap();
    let address = free_address();
    std::thread::spawn(move || {
        let mut server = Server::new_with_opt_and_conf(None, ServerConf::default());
        server.bootstrap();
        let proxy = LateLoggingProxy(gateway);
        let mut service = http_proxy_service(&Arc::clone(&server.configuration), proxy);
        service.add_tcp(&address.to_string());
        server.add_service(service);
        server.run(RunArgs::default());
    });
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "the gateway does not listen");
        std::thread::yield_now();
    }
    address
}

/// Opens a connection and sends this request.
fn send_request(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Reads until the bytes end with `end`, or the connection ends.
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut response = Vec::new();
    while !response.ends_with(end.as_bytes()) {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            break;
        }
        response.push(byte[0]);
    }
    String::from_utf8(response).unwrap()
}

/// Sends a request, and later a POST that Pingora forwards on the same upstream connection. The
/// deadline of the first exchange passes while the server works on the POST: the POST must still
/// get its response.
fn assert_next_exchange_survives(method: &str, response: &'static str, end: &str) {
    let folder = tempfile::tempdir().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let address =
        spawn_gateway(folder.path(), spawn_upstream_server(response, Arc::clone(&connections)));
    let started = Instant::now();
    let mut first = send_request(address, &format!("{method} /form HTTP/1.1\r\nHost: a\r\n\r\n"));
    let response = read_until(&mut first, end);
    assert!(response.starts_with("HTTP/1.1 20"), "{response}");
    std::thread::sleep((EXCHANGE_DEADLINE * 3 / 4).saturating_sub(started.elapsed()));
    let mut second =
        send_request(address, "POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    let response = read_until(&mut second, "last");
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("last"), "{response}");
    assert_eq!(connections.load(Ordering::SeqCst), 1, "both exchanges use one connection");
}

#[test]
fn a_deadline_never_ends_the_next_exchange_on_its_connection() {
    std::thread::scope(|scope| {
        for (method, response, end) in [
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst", "first"),
            (
                "GET",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nf\r\n0\r\n\r\n",
                "0\r\n\r\n",
            ),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\n\r\n"),
            ("GET", "HTTP/1.1 204 No Content\r\n\r\n", "\r\n\r\n"),
            ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "\r\n\r\n"),
        ] {
            scope.spawn(move || assert_next_exchange_survives(method, response, end));
        }
    });
}
