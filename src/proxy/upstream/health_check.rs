//! The active health checks of the upstream servers.
//!
//! A check opens a new connection, with the TLS settings of forwarded requests, and the `Host` of
//! requests for `/v1/check/`. Each server is checked on its own, and each check has one deadline.
//! So a slow server delays the check of another only if [`MAX_CONCURRENT_CHECKS`] servers are slow.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora::connectors::ConnectorOptions;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::server::ShutdownWatch;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::exchange::ResponseFraming;

/// The most checks at the same time. Their file descriptors come from those that riskgate reserves
/// beside the descriptors of connections.
const MAX_CONCURRENT_CHECKS: usize = 64;

/// Checks each of the servers that `list_servers` returns, once per `interval` until the shutdown.
/// Starts no second check of a server whose check is still under way. Checks nothing if `interval`
/// is zero.
pub async fn check_periodically<C>(
    interval: Duration,
    list_servers: impl Fn() -> Vec<SocketAddr>,
    check: impl Fn(SocketAddr) -> C,
    mut shutdown: ShutdownWatch,
) where
    C: Future<Output = ()> + Send + 'static,
{
    if interval.is_zero() {
        return;
    }
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_CHECKS));
    let mut checks = JoinSet::new();
    let mut server_by_check: HashMap<Id, SocketAddr> = HashMap::new();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                for server in list_servers() {
                    if server_by_check.values().any(|checked| *checked == server) {
                        continue;
                    }
                    let (permits, check) = (Arc::clone(&permits), check(server));
                    let task = checks.spawn(async move {
                        let _permit = permits.acquire().await;
                        check.await;
                    });
                    server_by_check.insert(task.id(), server);
                }
            }
            Some(ended) = checks.join_next_with_id() => {
                let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
                server_by_check.remove(&id);
            }
            _ = shutdown.changed() => return,
        }
    }
}

/// Requests the health path of servers over HTTP.
pub struct HealthClient(Connector);

impl HealthClient {
    /// Creates a client. `options` has the certificate authorities that the client trusts.
    pub fn new(options: ConnectorOptions) -> HealthClient {
        HealthClient(Connector::new(Some(options)))
    }

    /// Requests `path` from a server, and reads the whole response if its status is 200.
    ///
    /// # Errors
    /// Says why the server is not healthy.
    pub async fn request(&self, peer: &HttpPeer, host: &str, path: &str) -> Result<(), String> {
        self.try_request(peer, host, path).await.map_err(|error| match error.etype() {
            ErrorType::HTTPStatus(status) => {
                format!("expected status 200 for {path}, but found {status}")
            }
            _ => describe_error(&error),
        })
    }

    async fn try_request(&self, peer: &HttpPeer, host: &str, path: &str) -> Result<()> {
        let mut request = RequestHeader::build("GET", path.as_bytes(), Some(1))?;
        request.insert_header("Host", host)?;
        // riskgate does not keep the connection, so each check shows that the server accepts new
        // connections.
        let (mut session, _) = self.0.get_http_session(peer).await?;
        session.write_request_header(Box::new(request)).await?;
        session.finish_request_body().await?;
        session.set_read_timeout(peer.options.read_timeout);
        let status = loop {
            session.read_response_header().await?;
            let status = session.response_header().map_or(0, |header| header.status.as_u16());
            // An informational response comes before the final response.
            if !(100..200).contains(&status) || status == 101 {
                break status;
            }
        };
        if status != 200 {
            return Error::e_explain(ErrorType::HTTPStatus(status), "health check");
        }
        let framing = session.response_header().map(ResponseFraming::of_header);
        if framing.is_some_and(|framing| framing.is_err()) {
            return Error::e_explain(ErrorType::InvalidHTTPHeader, "health check");
        }
        while session.read_response_body().await?.is_some() {}
        Ok(())
    }
}

/// Says why a connection could not be opened.
pub fn describe_connect_error(error: &std::io::Error) -> String {
    if let Some(of_pingora) = error.get_ref().and_then(|inner| inner.downcast_ref::<Box<Error>>()) {
        return describe_error(of_pingora);
    }
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        std::io::ErrorKind::TimedOut => "no connection in time".to_owned(),
        _ => error.to_string(),
    }
}

/// Says why a server could not be asked.
pub fn describe_error(error: &Error) -> String {
    let text = match error.etype() {
        ErrorType::ConnectRefused => "connection refused",
        ErrorType::ConnectTimedout => "no connection in time",
        ErrorType::ConnectNoRoute => "no route to the server",
        ErrorType::InvalidCert => "expected a valid certificate, but found another",
        ErrorType::TLSHandshakeFailure
        | ErrorType::TLSHandshakeTimedout
        | ErrorType::HandshakeError => {
            "expected a TLS handshake, but it failed; `riskgate doctor` says why"
        }
        ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError => {
            "expected a whole response, but the connection ended"
        }
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => {
            "expected a whole response, but found none in time"
        }
        ErrorType::InvalidHTTPHeader | ErrorType::H1Error => {
            "expected a response of HTTP/1.1, but found something else"
        }
        other => return format!("expected a connection, but found {}", other.as_str()),
    };
    text.to_owned()
}
