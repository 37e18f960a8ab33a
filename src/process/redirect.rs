//! The listener that sends clients to HTTPS.
//!
//! It answers one request on each connection, with 308 and the same host and target (RFC 9110
//! section 15.4.9), and forwards nothing. It logs and counts no requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{CACHE_CONTROL, HOST, LOCATION};
use http::{HeaderValue, Response, StatusCode};
use pingora::apps::ServerApp;
use pingora::http::RequestHeader;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::single_response::send_response;
use crate::model::network::Networks;
use crate::support::per_client_limit::PerClientLimit;

/// The most open connections. Their descriptors come from the reserve of the descriptor budget.
const MAX_CONNECTIONS: usize = 64;
/// The most open connections from one IPv4 address or one /64 of IPv6.
const MAX_CONNECTIONS_PER_CLIENT: usize = 8;
/// The longest time to receive the request header, and to send the response.
const PHASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest target that is repeated in the response, in bytes.
const MAX_TARGET_BYTES: usize = 2_048;
/// The port of an `https` URL that names none.
const HTTPS_PORT: u16 = 443;

/// The server app of `listen.redirect`.
pub struct RedirectApp {
    https_port: u16,
    connections: Semaphore,
    connections_per_client: Arc<PerClientLimit>,
}

impl RedirectApp {
    /// Sends clients to the HTTPS listener at this address. Trusted proxies may have more
    /// connections than a client.
    pub fn new(https: SocketAddr, trusted_proxies: Networks) -> RedirectApp {
        RedirectApp {
            https_port: https.port(),
            connections: Semaphore::new(MAX_CONNECTIONS),
            connections_per_client: Arc::new(PerClientLimit::new(
                MAX_CONNECTIONS_PER_CLIENT,
                trusted_proxies,
            )),
        }
    }

    async fn serve_connection(&self, stream: Stream) {
        let mut session = ServerSession::new_http1(stream);
        let response = match timeout(PHASE_TIMEOUT, session.read_request()).await {
            Ok(Ok(true)) => redirect_to_https(session.req_header(), self.https_port),
            Ok(Err(_)) => bad_request(),
            _ => return,
        };
        session.set_keepalive(None);
        // A failed or slow write concerns only this client, so it is not logged.
        let _ = timeout(PHASE_TIMEOUT, send_response(session, response)).await;
    }
}

#[async_trait]
impl ServerApp for RedirectApp {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        _shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let digest = stream.get_socket_digest()?;
        let client: IpAddr = digest.peer_addr().and_then(|address| address.as_inet())?.ip();
        let _permit = self.connections.try_acquire().ok()?;
        let _guard = self.connections_per_client.acquire(client)?;
        self.serve_connection(stream).await;
        None
    }
}

/// Returns the answer to a request with this header: 308, or 400 if the header names no host.
fn redirect_to_https(header: &RequestHeader, https_port: u16) -> Response<Vec<u8>> {
    let mut hosts = header.headers.get_all(HOST).iter();
    let (host, target) = (hosts.next(), header.raw_path());
    let is_repeatable = target.starts_with(b"/")
        && target.len() <= MAX_TARGET_BYTES
        && target.iter().all(u8::is_ascii_graphic)
        && hosts.next().is_none();
    let host = host.and_then(|host| host_without_port(host.to_str().ok()?));
    let (Some(host), true) = (host, is_repeatable) else { return bad_request() };
    let port = if https_port == HTTPS_PORT { String::new() } else { format!(":{https_port}") };
    let location = format!("https://{host}{port}{}", String::from_utf8_lossy(target));
    let Ok(location) = HeaderValue::from_str(&location) else { return bad_request() };
    let mut response = empty_response(StatusCode::PERMANENT_REDIRECT);
    response.headers_mut().insert(LOCATION, location);
    response
}

/// Returns the host of a `Host` field; `None` if it is no host with an optional port.
fn host_without_port(host: &str) -> Option<&str> {
    let end = match host.starts_with('[') {
        true => host.find(']')? + 1,
        false => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_name_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.len() <= 255 && name.bytes().all(is_name_byte),
    };
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    (is_name && has_port).then_some(name)
}

fn bad_request() -> Response<Vec<u8>> {
    empty_response(StatusCode::BAD_REQUEST)
}

fn empty_response(status: StatusCode) -> Response<Vec<u8>> {
    let mut response = Response::new(Vec::new());
    *response.status_mut() = status;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_with_an_optional_port_is_repeated() {
        for (host, expected) in [
            ("gate.test", Some("gate.test")),
            ("gate.test:80", Some("gate.test")),
            ("127.0.0.1:8080", Some("127.0.0.1")),
            ("[::1]:80", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("", None),
            (":80", None),
            ("a b", None),
            ("user@gate.test", None),
            ("gate.test/path", None),
            ("gate.test:80x", None),
            ("[gate.test]", None),
            ("[::1", None),
        ] {
            assert_eq!(host_without_port(host), expected, "{host}");
        }
    }
}
