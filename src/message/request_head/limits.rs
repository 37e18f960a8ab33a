//! The size limits of a request.

use crate::model::path_prefix::PathPrefix;

/// The size limits of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The most bytes of a request head, including the request line.
    pub header_bytes: usize,
    /// The most fields of a request head.
    pub header_fields: usize,
    /// The most bytes of a request target.
    pub target_bytes: usize,
    /// The most bytes of a body that is forwarded.
    pub body_bytes: usize,
    /// The path on which proxies ask about the requests of their clients. There every method may
    /// have a body, and a target may be as long as a header: a proxy may ask with GET, with the
    /// client's body and behind its path with the client's target.
    pub authz_path: Option<PathPrefix>,
}

impl RequestLimits {
    /// Returns true if proxies ask with this target.
    pub(super) fn is_authz_target(&self, target: &[u8]) -> bool {
        self.authz_path.as_ref().is_some_and(|path| path.strip_from(target).is_some())
    }

    /// Returns the longest target that may begin like this one, in bytes.
    pub(super) fn max_target_bytes(&self, target: &[u8]) -> usize {
        if self.is_authz_target(target) { self.header_bytes } else { self.target_bytes }
    }
}
