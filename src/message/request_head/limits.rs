//! The size limits of a request.

/// The size limits of a request.
#[derive(Clone, Debug)]
pub struct RequestLimits {
    /// The most bytes of a request head, including the request line.
    pub header_bytes: usize,
    /// The most fields of a request head.
    pub header_fields: usize,
    /// The most bytes of a request target.
    pub target_bytes: usize,
    /// The most bytes of a body.
    pub body_bytes: usize,
}
