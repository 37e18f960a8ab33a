//! The header of a request, as the gates read it, however it came.

use crate::gate::admission::OriginHeader;

/// What the gates ask of a request.
pub(crate) struct GateRequest<'r> {
    /// The method.
    pub method: &'r str,
    /// The target as it came.
    pub target: &'r [u8],
    /// The value of `Authorization`: several are as good as none.
    pub authorization: Option<&'r [u8]>,
    /// What is said of the origin.
    pub origin: OriginHeader,
    /// Whether a browser asks for leave.
    pub is_preflight: bool,
}

impl<'r> GateRequest<'r> {
    /// The one value of a field that may stand once.
    pub fn single_value(mut values: impl Iterator<Item = &'r [u8]>) -> Option<&'r [u8]> {
        match (values.next(), values.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        }
    }
}
