//! One connection of the admin listener: a place, a request, an answer.
//!
//! Owns how long each of them may take. What a client does wrong is told to it alone, so that
//! nobody fills the log by it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Response, StatusCode};
use pingora_core::apps::ServerApp;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_core::{ErrorType, Result};
use tokio::time::timeout;

use super::Admin;
use super::connection_limit::{ConnectionLimit, Place};
use super::responses::plain;

/// Connections at the same time: their descriptors are among those kept back.
const MOST: usize = 64;
/// Of those, connections from one IPv4 address or one /64 of IPv6.
const MOST_PER_CLIENT: usize = 16;
/// How long a header may take, and how long an answer may take to be sent.
const STAYS: Duration = Duration::from_secs(15);

/// The server app of `listen.admin`.
pub struct AdminListener {
    admin: Admin,
    limit: Arc<ConnectionLimit>,
}

#[async_trait]
impl ServerApp for AdminListener {
    async fn process_new(
        self: &Arc<Self>,
        stream: Stream,
        _shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let digest = stream.get_socket_digest()?;
        let client = digest.peer_addr().and_then(|address| address.as_inet())?;
        let mut guard = self.limit.enter(client.ip())?;
        let place = guard.place();
        tokio::select! {
            biased;
            () = self.serve(stream, &place) => {}
            () = guard.displaced() => {}
        }
        None
    }
}

impl AdminListener {
    /// A listener that answers as this app does.
    pub fn new(admin: Admin) -> AdminListener {
        AdminListener { admin, limit: Arc::new(ConnectionLimit::new(MOST, MOST_PER_CLIENT)) }
    }

    /// Answers one request: no place is kept by who asks seldom.
    async fn serve(&self, stream: Stream, place: &Place) {
        let mut session = ServerSession::new_http1(stream);
        let response = match timeout(STAYS, session.read_request()).await {
            Ok(Ok(true)) => {
                // Who waits for an answer keeps its place until there is one.
                let _asking = place.hold();
                self.respond(&session).await
            }
            Ok(Err(error)) if !is_gone(error.etype()) => {
                plain(StatusCode::BAD_REQUEST, "expected a well-formed HTTP/1.1 request\n")
            }
            _ => return,
        };
        session.set_keepalive(None);
        // Whoever takes it too slowly, or is gone, has nobody to complain to.
        let _ = timeout(STAYS, send(session, response)).await;
    }

    async fn respond(&self, session: &ServerSession) -> Response<Vec<u8>> {
        let header = session.req_header();
        let (method, path) = (header.method.as_str(), header.uri.path());
        let mut response = self.admin.answer(method, path, &header.headers).await;
        if method == "HEAD" {
            response.body_mut().clear();
        }
        response
    }
}

/// Whether there is nobody to answer.
fn is_gone(error: &ErrorType) -> bool {
    matches!(error, ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::ReadTimedout)
}

async fn send(mut session: ServerSession, response: Response<Vec<u8>>) -> Result<()> {
    let (parts, body) = response.into_parts();
    session.write_response_header(Box::new(parts.into())).await?;
    if !body.is_empty() {
        session.write_response_body(body.into(), true).await?;
    }
    session.finish().await.map(drop)
}
