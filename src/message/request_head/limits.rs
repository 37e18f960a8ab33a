//! How large a request may be.

/// Sizes of what comes in.
#[derive(Clone, Debug)]
pub struct RequestLimits {
    /// Bytes of a whole header block, request line included.
    pub header_bytes: usize,
    /// Fields of a header block.
    pub header_fields: usize,
    /// Bytes of a request target.
    pub target_bytes: usize,
    /// Bytes of a body, on prefixes that take one.
    pub body_bytes: usize,
}
