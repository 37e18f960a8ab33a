//! The listener that sends clients to HTTPS.
//!
//! It answers one request on each connection, with 308 and the same host and target (RFC 9110
//! section 15.4.9), and forwards nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::gate::{ConnectionFacts, Gate};
use crate::message::request_head::{
    RequestHead, RequestLimits, RequestLineStart, parse_request_head,
};
use crate::model::network::Networks;
use crate::model::refusal::Refusal;
use crate::support::per_client_limit::PerClientLimit;

/// The most open connections. Their descriptors come from the reserve of the descriptor budget.
const MAX_CONNECTIONS: usize = 64;
/// The most open connections from one IPv4 address or one /64 of IPv6.
const MAX_CONNECTIONS_PER_CLIENT: usize = 8;
/// The longest time to receive the request header, to send the response, and to wait for the
/// client's end of the connection.
const PHASE_TIMEOUT: Duration = Duration::from_secs(2);
/// The port of an `https` URL that names none.
const HTTPS_PORT: u16 = 443;

/// The server app of `listen.redirect`.
pub struct RedirectApp {
    gate: Gate,
    https_port: u16,
    limits: RequestLimits,
    connections: Semaphore,
    connections_per_client: Arc<PerClientLimit>,
}

impl RedirectApp {
    /// Sends clients to the HTTPS listener at this address. `gate` counts and logs the requests.
    /// Trusted proxies may have more connections than a client.
    pub fn new(
        gate: Gate,
        https: SocketAddr,
        limits: RequestLimits,
        trusted_proxies: Networks,
    ) -> RedirectApp {
        RedirectApp {
            gate,
            https_port: https.port(),
            // No body is read.
            limits: RequestLimits { body_bytes: usize::MAX, ..limits },
            connections: Semaphore::new(MAX_CONNECTIONS),
            connections_per_client: Arc::new(PerClientLimit::new(
                MAX_CONNECTIONS_PER_CLIENT,
                trusted_proxies,
            )),
        }
    }

    async fn serve_connection(&self, mut stream: Stream, client: IpAddr) {
        let mut received = Vec::new();
        let read = timeout(PHASE_TIMEOUT, self.read_location(&mut stream, &mut received)).await;
        let Ok(Some(location)) = read else { return };
        let connection = ConnectionFacts::new(Some(client), None);
        let mut answer = match location {
            Ok((location, head_length)) => {
                self.gate.redirect(&location, &connection, &received[..head_length])
            }
            Err(refusal) => {
                let line = RequestLineStart::guess(&received);
                self.gate.refuse_before_gates(
                    &refusal,
                    &connection,
                    line.protocol(),
                    line.is_head_method,
                )
            }
        };
        let bytes = answer.render_as_http1();
        let write = async {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        };
        let is_sent = matches!(timeout(PHASE_TIMEOUT, write).await, Ok(Ok(())));
        answer.count_and_log(is_sent);
        if is_sent {
            // Bytes that are not read would reset the connection, and the client might lose the
            // answer.
            let _ = timeout(PHASE_TIMEOUT, discard(&mut stream)).await;
        }
    }

    /// Reads a request header into `received`. Returns the location to send the client to and the
    /// length of the header, or why the request is refused; `None` if the client left.
    async fn read_location(
        &self,
        stream: &mut Stream,
        received: &mut Vec<u8>,
    ) -> Option<Result<(String, usize), Refusal>> {
        loop {
            let scanned = received.len();
            if stream.read_buf(received).await.ok()? == 0 {
                return None;
            }
            match parse_request_head(received, scanned, &self.limits) {
                Ok(Some(head)) => {
                    let location = self.find_location(&head).ok_or(Refusal::BadRequest);
                    return Some(location.map(|location| (location, head.head_length)));
                }
                Ok(None) => {}
                Err(refusal) => return Some(Err(refusal)),
            }
        }
    }

    /// Returns the URL of the request at the HTTPS listener; `None` if it names no host, or if its
    /// target is no path.
    fn find_location(&self, head: &RequestHead<'_>) -> Option<String> {
        let target = std::str::from_utf8(head.request_line.target).ok()?;
        let host = std::str::from_utf8(head.fields.single_host()?).ok()?;
        let name = host_without_port(host)?;
        let port = match self.https_port {
            HTTPS_PORT => String::new(),
            other => format!(":{other}"),
        };
        target.starts_with('/').then(|| format!("https://{name}{port}{target}"))
    }
}

/// Reads until the client has closed its side.
async fn discard(stream: &mut Stream) {
    let mut buffer = [0; 4_096];
    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
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
        self.serve_connection(stream, client).await;
        None
    }
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
