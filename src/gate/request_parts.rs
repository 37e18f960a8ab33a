//! A request as the gates read it, the same on the Pingora path and the fast path, over HTTP/1.1
//! and HTTP/2.

use http::HeaderName;

use crate::gate::admission::{OriginHeader, PresentedKey};

/// The parts of a request that the gates read.
pub(crate) struct RequestParts<'r> {
    /// The method.
    pub method: &'r str,
    /// The request target as the client sent it.
    pub target: &'r [u8],
    /// The client's key.
    pub key: PresentedKey<'r>,
    /// The field that may contain a key instead of `Authorization`: `keys.header` in the config.
    pub key_header: Option<HeaderName>,
    /// The `Origin` header.
    pub origin: OriginHeader,
    /// Whether the request has `Access-Control-Request-Method`, as a CORS preflight has.
    pub has_cors_request_method: bool,
}
