//! `Cookie`, which HTTP/2 clients may divide, although it is no list.

use http::HeaderValue;
use http::header::COOKIE;
use pingora::Result;
use pingora::http::RequestHeader;

/// The most cookies of one site that a browser keeps.
const MAX_COOKIES_OF_SITE: usize = 180;
/// The bytes that each `Cookie` field adds to the size of an HTTP/2 header, apart from its value:
/// 32 bytes, and its name (RFC 9113 section 6.5.2).
const COOKIE_FIELD_OVERHEAD_BYTES: usize = 32 + "cookie".len();

/// The most bytes by which an HTTP/2 header grows if its client sends each cookie as a field of its
/// own.
pub const DIVIDED_COOKIES_OVERHEAD_BYTES: usize = MAX_COOKIES_OF_SITE * COOKIE_FIELD_OVERHEAD_BYTES;

/// Joins several `Cookie` fields into one. An HTTP/2 client may divide the field, because the parts
/// compress better. HTTP/1.1 allows only one field (RFC 9113 section 8.2.3).
///
/// # Errors
/// Returns an error if Pingora refuses the joined value. It never does: the parts are valid.
pub fn join_cookie_fields(request: &mut RequestHeader) -> Result<()> {
    let values = request.headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes);
    let cookies: Vec<&[u8]> = values.collect();
    if cookies.len() < 2 {
        return Ok(());
    }
    let joined = cookies.join(&b"; "[..]);
    HeaderValue::from_bytes(&joined).map_or(Ok(()), |value| request.insert_header(COOKIE, value))
}
