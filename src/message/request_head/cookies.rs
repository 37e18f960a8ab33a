//! `Cookie`, the one field of a request that HTTP/2 clients may divide.

use http::HeaderValue;
use http::header::COOKIE;
use pingora::Result;
use pingora::http::RequestHeader;

/// The most cookies of one site that a browser keeps.
const MAX_COOKIES: usize = 180;
/// What a `Cookie` field of its own adds to the size of an HTTP/2 header: 32 bytes, and its name
/// (RFC 9113 section 6.5.2).
const BYTES_FOR_FIELD: usize = 32 + "cookie".len();

/// The most bytes that a header grows by if its client sends each cookie as a field of its own.
pub const MAX_DIVIDED_COOKIE_BYTES: usize = MAX_COOKIES * BYTES_FOR_FIELD;

/// Joins several `Cookie` fields into one: an HTTP/2 client may divide the field, so that it
/// compresses better, and HTTP/1.1 allows only one (RFC 9113 section 8.2.3).
///
/// # Errors
/// Returns an error if Pingora takes the joined value for invalid, which can't happen.
pub fn join_cookie_fields(request: &mut RequestHeader) -> Result<()> {
    let values = request.headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes);
    let cookies: Vec<&[u8]> = values.collect();
    if cookies.len() < 2 {
        return Ok(());
    }
    let joined = cookies.join(&b"; "[..]);
    // The parts are valid values, and so is their join.
    HeaderValue::from_bytes(&joined).map_or(Ok(()), |value| request.insert_header(COOKIE, value))
}
