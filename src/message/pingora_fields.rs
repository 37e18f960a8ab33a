//! Changes the fields of Pingora's headers as a plain `HeaderMap`.
//!
//! Pingora keeps a second map, with the case in which each name has arrived, and changes it along
//! with the fields. That costs a multiple of the change itself. Names have no case in HTTP (RFC
//! 9110 section 5.1), and over HTTP/2 they are in lower case. So a message that riskgate changes
//! loses the second map. Over HTTP/1.1, Pingora then writes the names as if they came over HTTP/2.

use http::{HeaderMap, request, response};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};

/// Sets the target of a request, and lets `edit` change its fields.
///
/// # Errors
/// Returns an error if `target` is no valid target.
pub fn edit_request(
    header: &mut RequestHeader,
    target: &[u8],
    edit: impl FnOnce(&mut HeaderMap),
) -> Result<()> {
    let sends_end_stream = header.send_end_stream().unwrap_or(true);
    let (nothing, ()) = http::Request::new(()).into_parts();
    let mut parts = request::Parts::from(std::mem::replace(header, nothing.into()));
    edit(&mut parts.headers);
    *header = parts.into();
    header.set_send_end_stream(sends_end_stream);
    // `Parts` has no target but its URI.
    if header.raw_path() != target || header.uri.authority().is_some() {
        header.set_raw_path(target)?;
    }
    Ok(())
}

/// Lets `edit` change the fields of a response. The response gets the standard reason phrase.
pub fn edit_response(header: &mut ResponseHeader, edit: impl FnOnce(&mut HeaderMap)) {
    let (nothing, ()) = http::Response::new(()).into_parts();
    let mut parts = response::Parts::from(std::mem::replace(header, nothing.into()));
    edit(&mut parts.headers);
    *header = parts.into();
}

#[cfg(test)]
mod tests;
