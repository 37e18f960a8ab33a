//! Routing, by the method and the raw path of a request, and the form in which logs show a path.
//!
//! Denies by default: a path that matches no route gets a 404 and never reaches an upstream server.
//! This module reads no header and checks no key.

mod path_reading;
mod upstream_route;

use smol_str::SmolStr;

use crate::keys::MIN_KEY_LEN;
use crate::message::request_head::BUILTIN_METHODS;
use crate::model::domain::{Domain, percent_decode};
use crate::model::path_prefix::PathPrefix;
use crate::model::refusal::Refusal;
use crate::model::route_label::RouteLabel;
use crate::model::typed_address::first_mark_of_address;

pub use path_reading::{PathReadings, path_parameters_of, query_of, split_path_and_query};
pub use upstream_route::find_screen_rules;
use upstream_route::find_upstream_route_index;
pub use upstream_route::{RouteCors, RouteMethods, UpstreamRoute};

/// The longest e-mail address or domain of a check, decoded, in bytes.
const MAX_CHECK_TARGET_BYTES: usize = 1024;

const TOP_DOMAINS_PATH: &[u8] = b"/v1/public/top-domains";
/// The start of a verdict's path.
pub const DOMAIN_PATH_PREFIX: &str = "/v1/public/domain/";
/// The start of a check's path.
pub(super) const CHECK_PATH_PREFIX: &[u8] = b"/v1/check/";
const DOMAIN_BATCH_PATH: &[u8] = b"/v1/public/domains";
const ASSESS_PATH: &[u8] = b"/v1/assess";
const USAGE_PATH: &[u8] = b"/v1/usage";

/// The route of a request. Segments are raw, as the client sent them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// The list of the domains that were flagged most often.
    TopDomains,
    /// The verdict on a domain.
    Domain(&'a [u8]),
    /// The verdicts on many domains, which are in the body.
    DomainBatch,
    /// The decision on a sign-up, which is in the body.
    Assess,
    /// A check of an e-mail address or a domain. See [`CheckAnswer`].
    Check(&'a [u8]),
    /// The calls that the account has spent this month.
    Usage,
    /// The route with this index in `[[upstream.route]]`.
    Upstream(usize),
    /// An OPTIONS request on any of these routes, if riskgate answers it.
    Options {
        /// The value of `Allow`.
        allow: SmolStr,
        /// The index in `[[upstream.route]]`; `None` on a route of riskgate's own.
        upstream_route: Option<usize>,
    },
}

/// Who answers the checks of `/v1/check/`; `check.answer` in the config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckAnswer {
    /// The upstream servers.
    #[default]
    Upstream,
    /// The upstream servers. If riskgate gets no valid response of theirs in time, riskgate answers
    /// for an address or a domain.
    Fallback,
    /// riskgate, from its table and from the DNS facts that it has learned.
    Table,
}

impl Route<'_> {
    /// The label in metrics and logs.
    pub fn label(&self) -> RouteLabel {
        match self {
            Route::TopDomains => RouteLabel::TopDomains,
            Route::Domain(_) => RouteLabel::Domain,
            Route::DomainBatch => RouteLabel::DomainBatch,
            Route::Assess => RouteLabel::Assess,
            Route::Check(_) => RouteLabel::Check,
            Route::Usage => RouteLabel::Usage,
            Route::Upstream(_) => RouteLabel::Upstream,
            Route::Options { .. } => RouteLabel::Options,
        }
    }
}

/// Returns the route of a request. The refusal is a 404 if no route has the path, and a 405 if the
/// route doesn't take the method. `authz_path` is the path on which proxies ask.
pub fn match_route<'a>(
    method: &str,
    target: &'a [u8],
    upstream_routes: &[UpstreamRoute],
    authz_path: Option<&PathPrefix>,
) -> Result<Route<'a>, Refusal> {
    let (path, _) = split_path_and_query(target);
    let (route, allow) = match match_builtin_path(path) {
        Some(route @ (Route::DomainBatch | Route::Assess)) => {
            (route, SmolStr::new_static("POST, OPTIONS"))
        }
        Some(route) => (route, BUILTIN_METHODS),
        None => {
            let index = find_upstream_route_index(upstream_routes, authz_path, target);
            return match_upstream_method(method, upstream_routes, index.ok_or(Refusal::NotFound)?);
        }
    };
    match (method, &route) {
        ("OPTIONS", _) => Ok(Route::Options { allow, upstream_route: None }),
        ("GET" | "HEAD", Route::TopDomains | Route::Domain(_) | Route::Check(_) | Route::Usage) => {
            Ok(route)
        }
        ("POST", Route::DomainBatch | Route::Assess) => Ok(route),
        _ => Err(Refusal::MethodNotAllowed { allow }),
    }
}

/// Returns the index of the route of `[[upstream.route]]` to which a target leads, whatever the
/// method. `None` if the target leads to no such route.
pub(super) fn find_upstream_route(
    target: &[u8],
    upstream_routes: &[UpstreamRoute],
    authz_path: Option<&PathPrefix>,
) -> Option<usize> {
    match match_builtin_path(split_path_and_query(target).0) {
        Some(_) => None,
        None => find_upstream_route_index(upstream_routes, authz_path, target),
    }
}

fn match_upstream_method<'a>(
    method: &str,
    routes: &[UpstreamRoute],
    index: usize,
) -> Result<Route<'a>, Refusal> {
    let route = &routes[index];
    // If the server decides about other origins, the server answers preflights.
    let is_forwarded = match method {
        "OPTIONS" => route.has_server_cors(),
        _ => route.methods.contains(method),
    };
    let allow = || route.methods.allow_value();
    match (is_forwarded, method) {
        (true, _) => Ok(Route::Upstream(index)),
        (false, "OPTIONS") => Ok(Route::Options { allow: allow(), upstream_route: Some(index) }),
        (false, _) => Err(Refusal::MethodNotAllowed { allow: allow() }),
    }
}

/// Returns the text that a check is about: an e-mail address, a domain, or another text that only
/// the upstream server knows.
pub fn decode_check_segment(segment: &[u8]) -> Result<String, Refusal> {
    let invalid = Refusal::InvalidTarget;
    let decoded = percent_decode(segment)
        .map_err(|_| invalid("expected percent-encoding to be % and two hexadecimal digits"))?;
    let text = String::from_utf8(decoded).map_err(|_| invalid("expected valid UTF-8"))?;
    if text.len() > MAX_CHECK_TARGET_BYTES {
        return Err(invalid("expected at most 1,024 bytes"));
    }
    if text.contains('/') || text.chars().any(char::is_control) {
        return Err(invalid(
            "expected an e-mail address or a domain without / and control characters",
        ));
    }
    Ok(text)
}

/// Returns the path that the upstream server gets for a check: `/v1/check/` and the segment in
/// canonical form, so that each text has exactly one path. In canonical form, the unreserved
/// characters of RFC 3986 are literal, and all others are percent-encoded in upper case.
pub fn canonical_check_path(segment: &[u8]) -> Result<String, Refusal> {
    let text = decode_check_segment(segment)?;
    let mut path = String::with_capacity(CHECK_PATH_PREFIX.len() + 3 * text.len());
    path.push_str("/v1/check/");
    let hex_digit = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value)]);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            path.push(char::from(byte));
        } else {
            path.extend(['%', hex_digit(byte >> 4), hex_digit(byte & 0xf)]);
        }
    }
    Ok(path)
}

/// Returns the path as a log may show it: with at most 512 characters, and without the query and
/// the local part of an e-mail address. Only a segment with a valid domain may be as long as
/// a key.
pub fn redact_path(target: &[u8]) -> String {
    let (path, _) = split_path_and_query(target);
    if let Some(segment) = path.strip_prefix(CHECK_PATH_PREFIX) {
        let decoded = percent_decode(segment).unwrap_or_default();
        let text = String::from_utf8_lossy(&decoded);
        // Only a valid domain is shown; any other text may contain a local part.
        let (hidden, domain) = match text.rsplit_once('@') {
            Some((_, domain)) => ("…@", domain),
            None => ("", text.as_ref()),
        };
        return match Domain::parse(domain) {
            Ok(domain) => format!("/v1/check/{hidden}{domain}"),
            Err(_) => "/v1/check/…".to_owned(),
        };
    }
    if let Some(segment) = path.strip_prefix(DOMAIN_PATH_PREFIX.as_bytes()) {
        return match Domain::from_path_segment(segment) {
            Ok(domain) => format!("/v1/public/domain/{domain}"),
            Err(_) => "/v1/public/domain/…".to_owned(),
        };
    }
    let text = String::from_utf8_lossy(path);
    // In the other paths, nothing tells where an e-mail address would end. So a path that may
    // contain an address is hidden as a whole.
    if first_mark_of_address(&text).is_some() {
        return "…".to_owned();
    }
    let shown: Vec<&str> = text.split('/').map(redact_if_key_length).collect();
    shown.join("/").chars().take(512).collect()
}

/// Returns the client's text, or `…` if the text is long enough to be a key.
pub fn redact_if_key_length(text: &str) -> &str {
    if text.len() < MIN_KEY_LEN { text } else { "…" }
}

/// Returns the route of riskgate's own that has this path. `None` for any other path.
pub(super) fn match_builtin_path(path: &[u8]) -> Option<Route<'_>> {
    match path {
        TOP_DOMAINS_PATH => return Some(Route::TopDomains),
        DOMAIN_BATCH_PATH => return Some(Route::DomainBatch),
        ASSESS_PATH => return Some(Route::Assess),
        USAGE_PATH => return Some(Route::Usage),
        _ => {}
    }
    if let Some(segment) = path.strip_prefix(DOMAIN_PATH_PREFIX.as_bytes()) {
        return is_single_nondot_segment(segment).then_some(Route::Domain(segment));
    }
    let segment = path.strip_prefix(CHECK_PATH_PREFIX)?;
    is_single_nondot_segment(segment).then_some(Route::Check(segment))
}

/// Returns true if the text is exactly one path segment, is not empty, and is no dot segment (`.`
/// or `..`, percent-encoded or not). The longest dot segment is `%2e%2e`, with 6 bytes.
fn is_single_nondot_segment(segment: &[u8]) -> bool {
    if segment.is_empty() || segment.contains(&b'/') {
        return false;
    }
    let is_dots = |decoded: Vec<u8>| decoded == b"." || decoded == b"..";
    segment.len() > 6 || !percent_decode(segment).is_ok_and(is_dots)
}

#[cfg(test)]
mod tests;
