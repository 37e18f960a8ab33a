//! A gate in a proxy with filters of its own: errors and answers of the proxy itself, HTTP/2, and
//! the end of the process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use riskgate::pingora::apps::HttpServerOptions;
use riskgate::pingora::http::{RequestHeader, ResponseHeader};
use riskgate::pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch};
use riskgate::pingora::upstreams::peer::HttpPeer;
use riskgate::pingora::{Error, ErrorType, Result};
use riskgate::pingora_proxy::{FailToProxy, ProxyHttp, Session, http_proxy_service};
use riskgate::{Gate, Mount, RequestContext};

use crate::free_ports::free_address;
use crate::mount::{create_key, field_values};

/// A proxy whose own filters refuse and answer requests, by their paths.
struct ProxyWithFilters {
    gate: Gate,
    upstream: SocketAddr,
}

fn is_path(session: &Session, path: &str) -> bool {
    session.req_header().uri.path() == path
}

#[async_trait]
impl ProxyHttp for ProxyWithFilters {
    type CTX = RequestContext;

    fn new_ctx(&self) -> RequestContext {
        RequestContext::default()
    }

    async fn early_request_filter(
        &self,
        session: &mut Session,
        _: &mut RequestContext,
    ) -> Result<()> {
        match is_path(session, "/refused-early") {
            true => Error::e_explain(ErrorType::HTTPStatus(451), "mine"),
            false => Ok(()),
        }
    }

    async fn request_filter(
        &self,
        session: &mut Session,
        ctx: &mut RequestContext,
    ) -> Result<bool> {
        if is_path(session, "/answered") {
            #[expect(
                clippy::disallowed_methods,
                reason = "this proxy does not answer like riskgate"
            )]
            session.respond_error_with_body(418, Bytes::from_static(b"tea")).await?;
            return Ok(true);
        }
        let is_answered = self.gate.request_filter(session, ctx).await?;
        let is_answered_still = self.gate.request_filter(session, ctx).await?;
        assert_eq!(is_answered, is_answered_still);
        Ok(is_answered)
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        _: &mut RequestContext,
    ) -> Result<Box<HttpPeer>> {
        match session.req_header().headers.get("x-refuse") {
            Some(_) => Error::e_explain(ErrorType::HTTPStatus(403), "mine"),
            None => Ok(Box::new(HttpPeer::new(self.upstream, false, String::new()))),
        }
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        let host = match session.req_header().headers.get("x-host") {
            Some(_) => "a\nb",
            None => "server.test",
        };
        self.gate.upstream_request_filter(session, request, ctx, host)
    }

    async fn request_body_filter(
        &self,
        _: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        self.gate.request_body_filter(body, end_of_stream, ctx)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut RequestContext,
    ) -> Result<()> {
        self.gate.response_filter(session, response, ctx)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut RequestContext,
    ) -> FailToProxy {
        self.gate.fail_to_proxy(session, error, ctx).await
    }

    async fn logging(
        &self,
        session: &mut Session,
        error: Option<&Error>,
        ctx: &mut RequestContext,
    ) {
        self.gate.logging(session, error, ctx);
    }
}

struct NeverShutdown;

#[async_trait]
impl ShutdownSignalWatch for NeverShutdown {
    async fn recv(&self) -> ShutdownSignal {
        std::future::pending().await
    }
}

struct RunningProxy {
    address: SocketAddr,
    key: String,
    access_log: PathBuf,
    /// A server that answers nothing.
    _upstream: TcpListener,
    _folder: tempfile::TempDir,
}

fn write_config(folder: &tempfile::TempDir) -> PathBuf {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text = format!(
        "[store]\nurl = \"sqlite:{}\"\n[log]\npath = \"{}\"\n\
         [[upstream.route]]\nprefix = \"/\"\nkey = false\n",
        path("riskgate.db"),
        path("access.log")
    );
    let file = folder.path().join("riskgate.toml");
    std::fs::write(&file, text).unwrap();
    file
}

/// Starts the proxy in front of a server that answers nothing.
fn start_proxy() -> RunningProxy {
    let folder = tempfile::tempdir().unwrap();
    let config = write_config(&folder);
    let key = create_key(&config);
    let mount = Mount::from_config_file(&config).unwrap();
    let (gate, address) = (mount.gate(), free_address());
    let mut server = Server::new(None).unwrap();
    server.bootstrap();
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = ProxyWithFilters { gate, upstream: upstream.local_addr().unwrap() };
    let mut service = http_proxy_service(&server.configuration, proxy);
    let mut options = HttpServerOptions::default();
    options.h2c = true;
    service.app_logic_mut().unwrap().server_options = Some(options);
    service.add_tcp(&address.to_string());
    server.add_service(service);
    server.add_service(mount.into_reload_service());
    std::thread::spawn(move || server.run(RunArgs { shutdown_signal: Box::new(NeverShutdown) }));
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "the proxy does not listen");
        std::thread::yield_now();
    }
    let access_log = folder.path().join("access.log");
    RunningProxy { address, key, access_log, _upstream: upstream, _folder: folder }
}

fn get(proxy: &RunningProxy, path: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let key = &proxy.key;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n{fields}\
         Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits for the line of this path in the access log.
fn wait_for_log_line(proxy: &RunningProxy, path: &str) -> serde_json::Value {
    let started = Instant::now();
    loop {
        let text = std::fs::read_to_string(&proxy.access_log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        let mut of_path = lines.filter(|line: &serde_json::Value| line["path"] == path);
        if let Some(line) = of_path.next() {
            return line;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "no line of {path}: {text}");
        std::thread::yield_now();
    }
}

#[test]
fn a_status_of_the_proxys_own_filters_is_the_answer_and_does_not_count() {
    let proxy = start_proxy();
    for (path, fields, status) in [
        ("/v1/check/a%40b.com", "X-Refuse: yes\r\n", 403),
        ("/api", "X-Refuse: yes\r\n", 403),
        ("/refused-early", "X-Request-Id: early-1\r\n", 451),
    ] {
        let answer = get(&proxy, path, fields);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        assert!(field_values(&answer, "x-fail-open").is_empty(), "{path}: {answer}");
        assert_eq!(field_values(&answer, "x-request-id").len(), 1, "{path}: {answer}");
    }
    assert!(get(&proxy, "/v1/usage", "").contains(r#""month_count":0,"#));
    let line = wait_for_log_line(&proxy, "/refused-early");
    assert_eq!((&line["request_id"], &line["status"]), (&"early-1".into(), &451.into()), "{line}");
}

#[test]
fn a_request_that_the_proxy_answers_itself_is_logged_with_its_id_and_client() {
    let proxy = start_proxy();
    let answer = get(&proxy, "/answered", "X-Request-Id: own-answer\r\n");
    assert!(answer.starts_with("HTTP/1.1 418 "), "{answer}");
    let line = wait_for_log_line(&proxy, "/answered");
    assert_eq!(line["request_id"], "own-answer", "{line}");
    assert_eq!((&line["client"], &line["status"]), (&"127.0.0.1".into(), &418.into()), "{line}");
}

#[test]
fn a_second_call_of_request_filter_counts_nothing() {
    let proxy = start_proxy();
    assert!(get(&proxy, "/v1/public/domain/yopmail.com", "").starts_with("HTTP/1.1 200 "));
    assert!(get(&proxy, "/v1/usage", "").contains(r#""month_count":1,"#));
}

#[test]
fn a_host_that_is_no_field_value_fails_the_request() {
    let proxy = start_proxy();
    let answer = get(&proxy, "/v1/check/a%40b.com", "X-Host: invalid\r\n");
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.contains(r#"{"error":"internal_error""#), "{answer}");
    assert!(get(&proxy, "/v1/usage", "").contains(r#""month_count":0,"#));
}

#[test]
fn a_second_close_of_a_gate_returns_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let mount = Mount::from_config_file(write_config(&folder)).unwrap();
    let gate = mount.gate();
    gate.close();
    let since = Instant::now();
    gate.close();
    mount.gate().close();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
}

/// Posts over HTTP/2 to a path that needs a key, without a key. Sends the body only once the
/// response has arrived. Returns the status, and the reason if the stream was reset.
async fn post_late_body(address: SocketAddr) -> (u16, Option<h2::Reason>) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("http://h/v1/assess").body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    let response = response.await.unwrap();
    let status = response.status().as_u16();
    let mut received = response.into_body();
    while let Some(part) = received.data().await {
        let _ = part.unwrap();
    }
    let part = Bytes::from(vec![b'x'; 16_000]);
    for is_last in [false, false, true] {
        if body.send_data(part.clone(), is_last).is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let reset = std::future::poll_fn(|context| body.poll_reset(context));
    let reset = tokio::time::timeout(Duration::from_millis(500), reset).await;
    (status, reset.ok().and_then(Result::ok))
}

#[test]
fn over_http2_a_client_may_end_a_short_body_behind_a_refusal() {
    let proxy = start_proxy();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(runtime.block_on(post_late_body(proxy.address)), (401, None));
}
