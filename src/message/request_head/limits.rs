//! The size limits of a request.

use crate::model::path_prefix::PathPrefix;

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
    /// The path on which every method may have a body: a proxy asks there about the requests of its
    /// clients, with a GET and the client's body.
    pub authz_path: Option<PathPrefix>,
}
