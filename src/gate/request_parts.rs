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

impl<'r> RequestParts<'r> {
    /// Returns the only one of these values; `None` if there is none or more than one.
    pub fn value_if_single(mut values: impl Iterator<Item = &'r [u8]>) -> Option<&'r [u8]> {
        match (values.next(), values.next()) {
            (Some(value), None) => Some(value),
            _ => None,
        }
    }
}
