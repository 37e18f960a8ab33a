//! Functions on Pingora's session: the beginning of a request, the state of its response, the close
//! of its connection, and 100 Continue.

use http::header::EXPECT;
use http::{HeaderValue, Version};
use pingora::Result;
use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;

use crate::exchange::{StatusKind, closes_after_response};
use crate::message::request_head::expects_continue;

use super::request_context::{ConnectionFacts, RequestContext};
use super::state::Gate;

/// Returns the name of a version of HTTP.
fn protocol_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_11 => "HTTP/1.1",
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

/// Returns true if the client waits for a 100 before it sends its body. A client of HTTP/1.0 knows
/// no 100 (RFC 9110 section 10.1.1). [`RequestHead::awaits_continue`] says the same of a request
/// that Pingora has not read.
///
/// [`RequestHead::awaits_continue`]: crate::message::request_head::RequestHead::awaits_continue
pub(crate) fn awaits_continue(client: &mut ServerSession) -> bool {
    let header = client.req_header();
    let expectations = header.headers.get_all(EXPECT).into_iter().map(HeaderValue::as_bytes);
    header.version > Version::HTTP_10 && expects_continue(expectations) && !client.is_body_done()
}

/// Sends 100 Continue to a client of HTTP/1.1 that waits for it, because riskgate does not forward
/// the expectation to the upstream server. On HTTP/2, Pingora can't send a 100.
pub(crate) async fn send_continue_if_awaited(session: &mut Session) -> Result<()> {
    let client = session.as_downstream_mut();
    if !client.is_http2() && awaits_continue(client) {
        client.write_continue_response().await?;
        // Pingora forwards a 100 of the upstream server while the header has `Expect`.
        client.req_header_mut().remove_header(&EXPECT);
    }
    // Pingora then drops the other 1xx responses of the upstream server.
    client.set_ignore_info_resp(true);
    Ok(())
}
