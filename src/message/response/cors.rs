//! Which pages of other origins may read a response (Fetch standard, CORS protocol).

use std::sync::Arc;

use smol_str::SmolStr;

use super::header_field::{self, FieldName};

const EXPOSED_HEADERS: &str = "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Fail-Open, \
                               X-Table-Version, X-Matched-Domain, X-Verdict-Source, X-Did-You-Mean, \
                               X-Evidence-Date";
/// The fields that a page may always send, unless the route lists the allowed fields.
const ALLOWED_REQUEST_HEADERS: &str = "Authorization, Content-Type, Traceparent, X-Request-Id";

/// Whether a browser may let a page of another origin read the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// riskgate adds no field that depends on the origin.
    #[default]
    NotOriginDependent,
    /// The request has no origin, or one whose pages may not read the response.
    Denied,
    /// This origin may read the response.
    Allowed {
        /// The origin, as the client wrote it.
        origin: SmolStr,
        /// What the route grants; `None` on a route without `origins`.
        grant: Option<Arc<CorsGrant>>,
    },
}

/// What a route grants to pages of its `origins`; `[upstream.route.cors]` in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsGrant {
    /// The fields that a page may send; if `None`, the fields that the browser asks for.
    allowed_headers: Option<String>,
    /// The fields of the response that a page may read.
    exposed_headers: String,
    /// Whether the browser may send cookies, and let the page read the response to them.
    allows_credentials: bool,
}

impl CorsGrant {
    /// Creates a grant. A page may send the fields of `allow_headers`. If `allow_headers` is
    /// `None`, a page may send the fields that its browser asks for. A page may read the fields
    /// that riskgate exposes on each route, and those of `expose_headers`.
    pub fn new(
        allow_headers: Option<&[String]>,
        expose_headers: &[String],
        allows_credentials: bool,
    ) -> CorsGrant {
        CorsGrant {
            allowed_headers: allow_headers.map(|names| names.join(", ")),
            exposed_headers: join_names(EXPOSED_HEADERS, expose_headers.iter().map(String::as_str)),
            allows_credentials,
        }
    }
}

impl Cors {
    pub(super) fn for_each_field(&self, put: &mut impl FnMut(&FieldName, &[u8])) {
        match self {
            Cors::NotOriginDependent => return,
            Cors::Denied => {}
            Cors::Allowed { origin, grant } => {
                put(&header_field::ACCESS_CONTROL_ALLOW_ORIGIN, origin.as_bytes());
                if grant.as_ref().is_some_and(|grant| grant.allows_credentials) {
                    put(&header_field::ACCESS_CONTROL_ALLOW_CREDENTIALS, b"true");
                }
                let granted = grant.as_ref().map(|grant| grant.exposed_headers.as_str());
                let exposed = granted.unwrap_or(EXPOSED_HEADERS);
                put(&header_field::ACCESS_CONTROL_EXPOSE_HEADERS, exposed.as_bytes());
            }
        }
        put(&header_field::VARY, b"Origin");
    }

    /// Returns the fields that a page may send, for the response to a preflight. `requested` are
    /// the fields that the browser asks for. `key_header` is the field that may contain the key
    /// instead of `Authorization`.
    pub fn allowed_request_headers<'h>(
        &'h self,
        requested: impl Iterator<Item = &'h str>,
        key_header: Option<&'h str>,
    ) -> String {
        let grant = match self {
            Cors::Allowed { grant, .. } => grant.as_deref(),
            _ => None,
        };
        match grant.and_then(|grant| grant.allowed_headers.as_ref()) {
            Some(names) => names.clone(),
            None => join_names(ALLOWED_REQUEST_HEADERS, key_header.into_iter().chain(requested)),
        }
    }
}

/// Adds to a list of field names the names of `more` that the list does not have.
fn join_names<'n>(list: &'static str, more: impl Iterator<Item = &'n str>) -> String {
    let mut names: Vec<&str> = list.split(", ").collect();
    for name in more {
        if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests;
