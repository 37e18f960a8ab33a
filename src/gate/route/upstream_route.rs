//! The routes of `[[upstream.route]]`: path prefixes that are forwarded to the upstream servers.
//!
//! The longest matching prefix wins, whatever the order in the config. A path matches no route if
//! an upstream server could read it as a path below a longer prefix.

use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;

use crate::gate::screen_rules::ScreenRules;
use crate::model::domain::percent_decode;
use crate::support::client_rates::Rate;

/// A path prefix that is forwarded to the upstream servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRoute {
    /// The prefix: it matches this path and every path below. It begins with `/` and does not end
    /// with `/`.
    pub path_prefix: String,
    /// The methods that are forwarded, in upper case.
    pub methods: Vec<String>,
    /// The value of `Allow`: the methods, and OPTIONS.
    pub allow_value: SmolStr,
    /// Whether a request on this route needs a key.
    pub needs_key: bool,
    /// Whether a request on this route spends a call of the quota; `counts` in the config.
    pub is_counted: bool,
    /// How often one client may send a request on this route.
    pub max_per_client: Option<Rate>,
    /// Whether the statuses 502 and 504 tell that no upstream server could be reached, or that none
    /// answered in time. Otherwise the status is 500.
    pub has_gateway_statuses: bool,
    /// The time from a complete request to the header of the response, and for each part of the
    /// response's body; `None` for any time.
    pub deadline: Option<Duration>,
    /// How posts on this route are screened; `None` if they are not.
    pub screen: Option<Arc<ScreenRules>>,
}

/// Returns the index of the route with the longest prefix that matches this path. `None` if no
/// prefix matches, or if upstream servers may read the path in different ways.
pub(super) fn find_upstream_route_index(routes: &[UpstreamRoute], path: &[u8]) -> Option<usize> {
    let below = |index: &usize| is_at_or_below(&routes[*index].path_prefix, path, <[u8]>::eq);
    let longest = (0..routes.len()).filter(below).max_by_key(|at| routes[*at].path_prefix.len())?;
    let length = routes[longest].path_prefix.len();
    let decoded = normalize_as_servers_may(&path[length..])?;
    let decoded_path = [&path[..length], &decoded].concat();
    // A server may decode the path, drop parameters or ignore case before it routes.
    let is_longer_match = |prefix: &UpstreamRoute| {
        prefix.path_prefix.len() > length
            && is_at_or_below(&prefix.path_prefix, &decoded_path, <[u8]>::eq_ignore_ascii_case)
    };
    (!routes.iter().any(is_longer_match)).then_some(longest)
}

/// Returns true if the path is this prefix or continues it with a `/`. `are_equal`
/// compares bytes, with or without regard to case.
fn is_at_or_below(prefix: &str, path: &[u8], are_equal: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    path.split_at_checked(prefix.len()).is_some_and(|(head, rest)| {
        are_equal(head, prefix.as_bytes()) && (rest.is_empty() || rest.starts_with(b"/"))
    })
}

/// Returns the path below a prefix as an upstream server may read it. Each segment is decoded and
/// loses what some servers ignore: parameters (from a `;` or a `:`), and blanks and dots at its
/// end. Returns `None` if servers may read the path in different ways, which has two causes.
/// Nothing is left of a segment, as of a dot segment; only the last one may be empty. Or a segment
/// contains a byte that some servers treat as a delimiter, such as `\` or an encoded `/`.
fn normalize_as_servers_may(path_below_prefix: &[u8]) -> Option<Vec<u8>> {
    let mut decoded_path = Vec::with_capacity(path_below_prefix.len());
    let mut segments = path_below_prefix.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let decoded = percent_decode(segment).ok()?;
        // 0xC0 and 0xC1 start overlong forms, which are invalid UTF-8 (RFC 3629 section 3).
        let is_ambiguous_byte = |byte: &u8| {
            matches!(byte, b'/' | b'\\' | b'%' | b'?' | b'#' | 0xC0 | 0xC1)
                || byte.is_ascii_control()
        };
        // Some servers strip parameters from a segment before they compare it.
        let stripped = decoded.split(|byte| matches!(byte, b';' | b':')).next().unwrap_or_default();
        let end = stripped.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
        let stripped = &stripped[..end.map_or(0, |last| last + 1)];
        let is_empty = stripped.is_empty() && !(is_last && decoded.is_empty());
        if is_empty || decoded.iter().any(is_ambiguous_byte) {
            return None;
        }
        decoded_path.push(b'/');
        decoded_path.extend_from_slice(stripped);
    }
    Some(decoded_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream_route(path: &str) -> UpstreamRoute {
        UpstreamRoute {
            path_prefix: path.to_owned(),
            methods: vec!["GET".to_owned()],
            allow_value: "GET, OPTIONS".into(),
            needs_key: true,
            is_counted: true,
            max_per_client: None,
            has_gateway_statuses: false,
            deadline: None,
            screen: None,
        }
    }

    fn matched_prefix(paths: &[&str], path: &str) -> Option<String> {
        let prefixes: Vec<UpstreamRoute> = paths.iter().copied().map(upstream_route).collect();
        find_upstream_route_index(&prefixes, path.as_bytes())
            .map(|index| prefixes[index].path_prefix.clone())
    }

    #[test]
    fn the_longest_prefix_wins_whatever_the_order() {
        for paths in [["/open", "/open/admin", "/o"], ["/o", "/open/admin", "/open"]] {
            for (path, expected) in [
                ("/open", Some("/open")),
                ("/open/", Some("/open")),
                ("/open/a", Some("/open")),
                ("/open/administrators", Some("/open")),
                ("/open/a/admin", Some("/open")),
                ("/open/admin", Some("/open/admin")),
                ("/open/admin/", Some("/open/admin")),
                ("/open/admin/users", Some("/open/admin")),
                ("/opening", None),
            ] {
                assert_eq!(matched_prefix(&paths, path).as_deref(), expected, "{path}");
            }
        }
    }

    #[test]
    fn a_path_that_respells_a_longer_prefix_gets_no_route() {
        let paths = ["/open", "/open/admin"];
        for path in [
            "/open/%61dmin",
            "/open/admi%6E/users",
            "/open/admin;x=1",
            "/open/admin;/users",
            "/open/admin%3bx",
            "/open/ADMIN",
            "/open/%41dmin",
            "/open/;x/admin",
            "/open/%3b/admin",
            "/open/;",
            "/open/admin.",
            "/open/admin%20/x",
            "/open/admin::$DATA",
            "/open/admin%3Fx",
            "/open/admin%23x",
            "/open/x/..%20/admin",
            "/open/x/..%c0%afadmin",
            "/open//admin",
            "/open/./admin",
            "/open/x/../admin",
        ] {
            assert_eq!(matched_prefix(&paths, path), None, "{path}");
        }
        assert_eq!(matched_prefix(&["/open"], "/open/%61dmin;x").as_deref(), Some("/open"));
    }

    #[test]
    fn an_ambiguous_path_matches_no_route() {
        let paths = ["/v1/signup"];
        for path in ["/v1/signup", "/v1/signup/", "/v1/signup/a/b", "/v1/signup/b%C3%BC"] {
            assert_eq!(matched_prefix(&paths, path).as_deref(), Some("/v1/signup"), "{path}");
        }
        for path in [
            "/v1/signups",
            "/v1/signup/../usage",
            "/v1/signup//a",
            "/v1/signup/%2e%2e/a",
            "/v1/signup/..;/a",
            "/v1/signup/.%3bx/a",
            "/v1/signup/a%2Fb",
            "/v1/signup/a\\b",
            "/v1/signup/a%5Cb",
            "/v1/signup/%252e",
            "/v1/signup/%00",
            "/v1/signup/%zz",
        ] {
            assert_eq!(matched_prefix(&paths, path), None, "{path}");
        }
    }
}
