//! Connections that carry one request and one response.

use http::Response;
use pingora::Result;
use pingora::protocols::http::ServerSession;

/// Sends the response, and ends the connection's session.
pub async fn send_response(mut session: ServerSession, response: Response<Vec<u8>>) -> Result<()> {
    let (parts, body) = response.into_parts();
    session.write_response_header(Box::new(parts.into())).await?;
    if !body.is_empty() {
        session.write_response_body(body.into(), true).await?;
    }
    session.finish().await.map(drop)
}
