//! A path and all paths below it.

use std::sync::Arc;

/// riskgate's own paths. Nothing at or below one of them is forwarded as a route.
pub const OWN_PATHS: [&str; 4] = ["/v1/public", "/v1/check", "/v1/usage", "/v1/assess"];

/// A path and all paths below it: `/authz`, `/authz/…`. The path begins with `/` and does not end
/// with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPrefix(Arc<str>);

impl PathPrefix {
    /// Parses a path whose segments have letters, digits, `-`, `.`, `_` and `~` only. `None` for
    /// any other text, and for a path with an empty segment or a dot segment.
    pub fn parse(text: &str) -> Option<PathPrefix> {
        let is_unreserved =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        let is_valid =
            |s: &str| !s.is_empty() && s != "." && s != ".." && s.bytes().all(is_unreserved);
        text.strip_prefix('/')?.split('/').all(is_valid).then(|| PathPrefix(text.into()))
    }

    /// The path itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns what follows the prefix in a request target: empty, or beginning with `/` or `?`.
    /// `None` if the target is neither at nor below the prefix.
    pub fn strip_from<'t>(&self, target: &'t [u8]) -> Option<&'t [u8]> {
        strip_path_from(target, &self.0)
    }
}

/// Returns true if a request target is at or below one of riskgate's own paths.
pub fn is_own_target(target: &[u8]) -> bool {
    OWN_PATHS.iter().any(|own| strip_path_from(target, own).is_some())
}

fn strip_path_from<'t>(target: &'t [u8], path: &str) -> Option<&'t [u8]> {
    let rest = target.strip_prefix(path.as_bytes())?;
    (rest.is_empty() || matches!(rest[0], b'/' | b'?')).then_some(rest)
}

#[cfg(test)]
mod tests;
