//! A request as the gates read it, the same on the Pingora path and the fast path, over HTTP/1.1
//! and HTTP/2.

use crate::gate::admission::OriginHeader;

/// The parts of a request that the gates read.
pub(crate) struct RequestParts<'r> {
    /// The method.
    pub method: &'r str,
    /// The request target as the client sent it.
    pub target: &'r [u8],
    /// The value of `Authorization`; `None` if the request has none or several.
    pub authorization: Option<&'r [u8]>,
    /// The `Origin` header.
    pub origin: OriginHeader,
    /// Whether the request has `Access-Control-Request-Method`, as a CORS preflight has.
    pub has_cors_request_method: bool,
}
