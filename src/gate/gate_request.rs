//! A request as the gates read it, whichever path (Pingora or fast path) and protocol it took.

use crate::gate::admission::OriginHeader;

/// The parts of a request that the gates read.
pub(crate) struct GateRequest<'r> {
    /// The method.
    pub method: &'r str,
    /// The request target as the client sent it.
    pub target: &'r [u8],
    /// The value of `Authorization`; `None` if the request has several.
    pub authorization: Option<&'r [u8]>,
    /// The `Origin` header.
    pub origin: OriginHeader,
    /// Whether the request has `Access-Control-Request-Method`, as a CORS preflight has.
    pub is_preflight: bool,
}

impl<'r> GateRequest<'r> {
    /// Returns the value of a field that occurs exactly once.
    pub fn single_value(mut values: impl Iterator<Item = &'r [u8]>) -> Option<&'r [u8]> {
        match (values.next(), values.next()) {
            (Some(value), None) => Some(value),
            _ => None,
        }
    }
}
