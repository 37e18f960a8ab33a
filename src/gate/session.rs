//! Functions on Pingora's session: the beginning of a request, the state of its response, the close
//! of its connection, and 100 Continue.

use http::HeaderValue;
use http::header::EXPECT;
use pingora::Result;
use pingora_proxy::Session;

use crate::exchange::{StatusKind, closes_after_response};
use crate::message::request_head::expects_continue;

use super::request_context::{ConnectionFacts, RequestContext};
use super::state::Gate;

/// Returns the name of a version of HTTP.
fn protocol_name(version: http::Version) -> &'static str {
    match version {
        http::Version::HTTP_2 => "HTTP/2",
        http::Version::HTTP_11 => "HTTP/1.1",
        _ => "HTTP/1.0",
    }
}

impl Gate {
    /// Begins a request on the Pingora path, unless it has begun. A proxy that mounts the gate may
    /// refuse or answer a request before it calls [`Gate::request_filter`].
    pub(super) fn begin_if_new(&self, session: &Session, ctx: &mut RequestContext) {
        if ctx.has_begun() {
            return;
        }
        let connection = session.digest().map(ConnectionFacts::from).unwrap_or_default();
        let header = session.req_header();
        *ctx = self.begin_request(ctx.start, &connection, protocol_name(header.version), header);
    }
}

/// Returns true if a final response has started. A 1xx is not final (RFC 9110 section 15.2).
pub(crate) fn has_final_response_started(session: &Session) -> bool {
    session
        .response_written()
        .is_some_and(|header| StatusKind::from(header.status.as_u16()) == StatusKind::Final)
}

/// Lets the client's connection close after the response if the process is about to end. If the
/// client asked for the close, Pingora closes the connection.
pub(super) fn close_if_process_ends(session: &mut Session) {
    if closes_after_response(None, false, session.is_process_shutting_down()) {
        session.set_keepalive(None);
    }
}

/// Sends 100 Continue to a client of HTTP/1.1 that waits for it, because riskgate does not forward
/// the expectation to the upstream server. On HTTP/2, Pingora can't send a 100.
pub(crate) async fn send_continue_if_awaited(session: &mut Session) -> Result<()> {
    let client = session.as_downstream_mut();
    let expectations = client.req_header().headers.get_all(EXPECT);
    if expects_continue(expectations.into_iter().map(HeaderValue::as_bytes))
        && client.req_header().version == http::Version::HTTP_11
        && !client.is_body_done()
    {
        client.write_continue_response().await?;
    }
    // Pingora then drops the 1xx responses of the upstream server, but a 100 only without `Expect`.
    client.set_ignore_info_resp(true);
    Ok(())
}
