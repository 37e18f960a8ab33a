//! The size limits of a request.

use crate::model::path_prefix::{PathPrefix, is_own_target};

/// The most bytes of a target that the `http` crate, and so Pingora, can read.
const MAX_PARSED_TARGET_BYTES: usize = 65_534;

/// The size limits of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The most bytes of a request head, including the request line.
    pub header_bytes: usize,
    /// The most fields of a request head.
    pub header_fields: usize,
    /// The most bytes of a request target on riskgate's own paths, and of a target that is no path.
    /// Any other target may be as long as a header, up to 65,534 bytes.
    pub target_bytes: usize,
    /// The most bytes of a body, except at and below `authz_path`.
    pub body_bytes: usize,
    /// The path on which proxies ask about the requests of their clients. At and below this path,
    /// each method may have a body: a proxy may ask with GET and the client's body.
    pub authz_path: Option<PathPrefix>,
}

impl RequestLimits {
    /// Returns true if this target is at or below the path on which proxies ask.
    pub(super) fn is_authz_target(&self, target: &[u8]) -> bool {
        self.authz_path.as_ref().is_some_and(|path| path.strip_from(target).is_some())
    }

    /// Returns the most bytes that a target with this beginning may have.
    pub(super) fn max_target_bytes(&self, target: &[u8]) -> usize {
        let is_bounded = target.first() != Some(&b'/') || is_own_target(target);
        let limit = if is_bounded { self.target_bytes } else { self.header_bytes };
        limit.min(MAX_PARSED_TARGET_BYTES)
    }
}
