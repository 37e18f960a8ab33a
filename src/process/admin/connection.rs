//! One connection of the admin listener: one request, one response.
//!
//! This file owns the time limits of the connection. riskgate answers a faulty request but does not
//! log it, so that no client can fill the log.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{Response, StatusCode};
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora::{ErrorType, Result};
use tokio::time::timeout;

use super::connection_limit::{BusyFlag, ConnectionLimit};
use super::responses::text_response;
use super::{AdminApp, AdminRequest};
use crate::gate::awaits_continue;
use crate::message::request_head::iter_parsed_fields;
use crate::proxy::request_body::announced_length;
use crate::support::test_fault::{TestFault, is_injected};

/// The most open connections. Their descriptors come from the reserve of the descriptor budget.
const MAX_CONNECTIONS: usize = 64;
/// The most open connections from one IPv4 address or one /64 of IPv6: more than the requests to
/// the admin API that may wait at the same time.
const MAX_CONNECTIONS_PER_CLIENT: usize = 40;
/// The longest time for each of three phases of a connection: to receive the request header, to
/// receive the body, and to send the response.
const PHASE_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest body of a request.
const MAX_ADMIN_BODY_BYTES: usize = 64 << 10;

/// The server app of `listen.admin`. The app limits the connections, reads one request from each
/// connection, and has an [`AdminApp`] answer the request.
pub struct AdminServerApp {
    admin: Arc<AdminApp>,
    connection_limit: Arc<ConnectionLimit>,
}

#[async_trait]
impl ServerApp for AdminServerApp {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        _shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let digest = stream.get_socket_digest()?;
        let client = digest.peer_addr().and_then(|address| address.as_inet())?;
        // A drain waits until the response is sent, because the response may contain a new key.
        let _tracked = self.admin.api.connection_tracker.track_admin_connection();
        let mut guard = self.connection_limit.register(client.ip())?;
        let busy_flag = guard.busy_flag();
        tokio::select! {
            biased;
            () = self.serve_connection(stream, client.ip(), &busy_flag) => {}
            () = guard.wait_until_evicted() => {}
        }
        None
    }

    async fn cleanup(&self) {
        self.admin.api.connection_tracker.remove_listener();
    }
}

impl AdminServerApp {
    /// Creates the server app, with no connection open.
    pub fn new(admin: AdminApp) -> AdminServerApp {
        admin.api.connection_tracker.add_listener();
        AdminServerApp {
            admin: Arc::new(admin),
            connection_limit: Arc::new(ConnectionLimit::new(
                MAX_CONNECTIONS,
                MAX_CONNECTIONS_PER_CLIENT,
            )),
        }
    }

    /// Serves one request and closes the connection, so that no client keeps an idle connection
    /// after its request.
    async fn serve_connection(&self, stream: Stream, client: IpAddr, busy_flag: &BusyFlag) {
        let mut session = ServerSession::new_http1(stream);
        let header_timeout = match is_injected(TestFault::NoDeadline) {
            true => Duration::from_secs(3600),
            false => PHASE_TIMEOUT,
        };
        let read_header = async {
            tokio::select! {
                biased;
                read = timeout(header_timeout, session.read_request()) => Some(read),
                () = self.wait_until_drain_ends_idle_connections() => None,
            }
        };
        let Some(read) = read_header.await else { return };
        let response = match read {
            Ok(Ok(true)) if has_two_framings(&session) => {
                text_response(StatusCode::BAD_REQUEST, "expected a well-formed HTTP/1.1 request\n")
            }
            Ok(Ok(true)) => {
                let body = match timeout(PHASE_TIMEOUT, read_body(&mut session)).await {
                    Ok(Ok(body)) => body,
                    Ok(Err(error)) if is_disconnected(error.etype()) => return,
                    Ok(Err(_)) => {
                        let text = "expected a well-formed body\n";
                        let response = text_response(StatusCode::BAD_REQUEST, text);
                        return send_last_response(session, response).await;
                    }
                    Err(_) if announces_large_body(&session) => None,
                    Err(_) => {
                        let text = "expected the whole body within 15 s\n";
                        let response = text_response(StatusCode::REQUEST_TIMEOUT, text);
                        return send_last_response(session, response).await;
                    }
                };
                // A connection that waits for its response must not be evicted.
                let _busy = busy_flag.mark_busy();
                match body {
                    Some(body) => self.answer_request(&session, body, client).await,
                    None => text_response(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "expected a body of at most 64 KiB\n",
                    ),
                }
            }
            Ok(Err(error)) if !is_disconnected(error.etype()) => {
                text_response(StatusCode::BAD_REQUEST, "expected a well-formed HTTP/1.1 request\n")
            }
            _ => return,
        };
        send_last_response(session, response).await;
    }

    /// Resolves once a drain has started, and a client that has sent no request has had time to
    /// send one.
    async fn wait_until_drain_ends_idle_connections(&self) {
        let tracker = &self.admin.api.connection_tracker;
        tracker.wait_until_drain_starts().await;
        tokio::time::sleep(tracker.drain_keepalive()).await;
    }

    async fn answer_request(
        &self,
        session: &ServerSession,
        body: Vec<u8>,
        client: IpAddr,
    ) -> Response<Vec<u8>> {
        let header = session.req_header();
        let method = header.method.as_str();
        let (uri, headers) = (&header.uri, &header.headers);
        let request = AdminRequest { method, uri, headers, body, client };
        let mut response = self.admin.route_request(request).await;
        if method == "HEAD" {
            response.body_mut().clear();
        }
        response
    }
}

/// Returns true if the request has both `Content-Length` and `Transfer-Encoding`: a proxy in front
/// may use the other field than Pingora. Pingora has removed one of both from the parsed fields, so
/// this function reads the raw header.
fn has_two_framings(session: &ServerSession) -> bool {
    let Some(raw) = session.as_http1().map(|session| session.get_headers_raw_bytes()) else {
        return false;
    };
    let count = |wanted: HeaderName| {
        let wanted = wanted.as_str().as_bytes();
        iter_parsed_fields(&raw).filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).count()
    };
    count(CONTENT_LENGTH) > 0 && count(TRANSFER_ENCODING) > 0
}

/// Returns true if the request announces a larger body than [`MAX_ADMIN_BODY_BYTES`].
fn announces_large_body(session: &ServerSession) -> bool {
    announced_length(session.req_header()).is_some_and(|length| length > MAX_ADMIN_BODY_BYTES)
}

/// Reads the body of a request; `None` if the body is larger than [`MAX_ADMIN_BODY_BYTES`].
/// riskgate uses only the bodies of changes by the admin API. If the client waits for a 100, first
/// sends the 100.
async fn read_body(session: &mut ServerSession) -> Result<Option<Vec<u8>>> {
    if awaits_continue(session) {
        if announces_large_body(session) {
            return Ok(None);
        }
        session.write_continue_response().await?;
    }
    let mut body = Vec::new();
    while let Some(part) = session.read_request_body().await? {
        if body.len() + part.len() > MAX_ADMIN_BODY_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&part);
    }
    Ok(Some(body))
}

/// Returns true if the error means that the client has left, or sends nothing.
fn is_disconnected(error: &ErrorType) -> bool {
    matches!(error, ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::ReadTimedout)
}

/// Sends the response, and closes the connection.
async fn send_last_response(mut session: ServerSession, response: Response<Vec<u8>>) {
    session.set_keepalive(None);
    // A failed or slow write concerns only this client, so riskgate does not log the failure.
    let _ = timeout(PHASE_TIMEOUT, send_response(session, response)).await;
}

/// Sends the response, and ends the connection's session.
async fn send_response(mut session: ServerSession, response: Response<Vec<u8>>) -> Result<()> {
    let (parts, body) = response.into_parts();
    session.write_response_header(Box::new(parts.into())).await?;
    if !body.is_empty() {
        session.write_response_body(body.into(), true).await?;
    }
    session.finish().await.map(drop)
}
