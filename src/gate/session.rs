//! What the gates ask Pingora's session, and what they send on it before an answer.

use std::net::{IpAddr, SocketAddr};

use http::header::EXPECT;
use pingora_core::Result;
use pingora_proxy::Session;

/// The address of the client, as far as it is known.
pub(crate) fn client_address(session: &Session) -> Option<IpAddr> {
    session.client_addr().and_then(|address| address.as_inet()).map(SocketAddr::ip)
}

/// Whether a final answer was begun. A 1xx is none (RFC 9110 section 15.2).
pub(crate) fn has_response_started(session: &Session) -> bool {
    session.response_written().is_some_and(|header| !header.status.is_informational())
}

/// Sends 100 Continue to a client that waits for it, since the server does not hear of it. On HTTP/2
/// Pingora can't send one.
pub(super) async fn send_continue(session: &mut Session) -> Result<()> {
    let client = session.as_downstream_mut();
    let expects = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
    let waits = client.req_header().headers.get(EXPECT).is_some_and(|v| expects(v.as_bytes()));
    if waits && client.req_header().version == http::Version::HTTP_11 && !client.is_body_done() {
        client.write_continue_response().await?;
    }
    // The server's own are not passed on.
    client.set_ignore_info_resp(true);
    Ok(())
}
