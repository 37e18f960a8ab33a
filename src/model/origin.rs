//! Browser origins, and the patterns with which keys allow them (RFC 6454).
//!
//! Origins are compared by scheme, host and port. Parsing lower-cases origins, drops default ports
//! and writes IPv6 addresses in canonical form. This module knows neither keys nor headers.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use smol_str::{SmolStr, StrExt, format_smolstr};

use crate::model::domain::host_to_ascii;

/// The origin of a request, parsed from its `Origin` header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    scheme: SmolStr,
    host: SmolStr,
    port: Option<u16>,
}

/// An entry of a key's `origins`: one origin, or every subdomain of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginPattern {
    origin: Origin,
    is_wildcard: bool,
}

/// The text is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an origin such as https://app.example.com or https://*.example.com")]
pub struct OriginError;

impl Origin {
    /// Parses a header's value; `null`, lists and malformed values are errors.
    pub fn parse(text: &str) -> Result<Origin, OriginError> {
        let (scheme, authority) = text.split_once("://").ok_or(OriginError)?;
        let scheme = scheme.to_ascii_lowercase_smolstr();
        let first = scheme.bytes().next().ok_or(OriginError)?;
        let is_scheme_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        if !first.is_ascii_alphabetic() || !scheme.bytes().all(is_scheme_byte) {
            return Err(OriginError);
        }
        let (host, port) = split_host_and_port(authority)?;
        let host = canonicalize_host(&scheme, host)?;
        let port = port.filter(|port| default_port(&scheme) != Some(*port));
        Ok(Origin { scheme, host, port })
    }

    /// The texts of all patterns that could cover this origin: the origin itself, and a wildcard
    /// for each parent of its host.
    pub fn covering_patterns(&self) -> impl Iterator<Item = String> + '_ {
        let pattern = |host: &str, is_wildcard| {
            let origin = Origin { host: host.into(), ..self.clone() };
            OriginPattern { origin, is_wildcard }.to_string()
        };
        let parents = self.host.match_indices('.').map(|(dot, _)| &self.host[dot + 1..]);
        std::iter::once(pattern(&self.host, false))
            .chain(parents.map(move |parent| pattern(parent, true)))
    }
}

impl OriginPattern {
    /// Parses an entry of a key's `origins`. An international name may be written in Unicode; the
    /// pattern keeps its A-labels, because browsers send these.
    pub fn parse(text: &str) -> Result<OriginPattern, OriginError> {
        let ascii = pattern_with_ascii_host(text).ok_or(OriginError)?;
        let text = ascii.as_str();
        match text.split_once("://*.") {
            Some((scheme, rest)) => {
                let origin = Origin::parse(&format!("{scheme}://{rest}"))?;
                // `https://*.com` would allow half of the web, and an IP address has no subdomains.
                let is_address =
                    origin.host.starts_with('[') || origin.host.parse::<Ipv4Addr>().is_ok();
                if !origin.host.contains('.') || is_address {
                    return Err(OriginError);
                }
                Ok(OriginPattern { origin, is_wildcard: true })
            }
            None => Ok(OriginPattern { origin: Origin::parse(text)?, is_wildcard: false }),
        }
    }

    /// Whether the pattern covers this origin. A wildcard does not cover its own apex.
    pub fn matches(&self, origin: &Origin) -> bool {
        let pattern = &self.origin;
        if pattern.scheme != origin.scheme || pattern.port != origin.port {
            return false;
        }
        if !self.is_wildcard {
            return pattern.host == origin.host;
        }
        origin
            .host
            .strip_suffix(pattern.host.as_str())
            .is_some_and(|head| head.len() > 1 && head.ends_with('.'))
    }
}

impl OriginPattern {
    /// The narrower of two patterns, if one of them covers the other.
    pub fn intersect<'p>(&'p self, other: &'p OriginPattern) -> Option<&'p OriginPattern> {
        if self.covers_pattern(other) {
            Some(other)
        } else if other.covers_pattern(self) {
            Some(self)
        } else {
            None
        }
    }

    fn covers_pattern(&self, other: &OriginPattern) -> bool {
        self == other || (self.is_wildcard && self.matches(&other.origin))
    }
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_wildcard { "*." } else { "" };
        write!(f, "{}://{star}{}", self.origin.scheme, self.origin.host)?;
        match self.origin.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

fn split_host_and_port(authority: &str) -> Result<(&str, Option<u16>), OriginError> {
    let after_bracket = authority.rfind(']').map_or(0, |i| i + 1);
    match authority[after_bracket..].find(':') {
        None => Ok((authority, None)),
        Some(colon) => {
            let (host, port) = authority.split_at(after_bracket + colon);
            let digits = &port[1..];
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(OriginError);
            }
            Ok((host, Some(digits.parse().map_err(|_| OriginError)?)))
        }
    }
}

/// The same pattern with its host in A-labels. `None` if the text has no `://`, or if the host
/// can't be mapped.
fn pattern_with_ascii_host(text: &str) -> Option<SmolStr> {
    if text.is_ascii() {
        return Some(text.into());
    }
    let (scheme, authority) = text.split_once("://")?;
    let (star, authority) = match authority.strip_prefix("*.") {
        Some(rest) => ("*.", rest),
        None => ("", authority),
    };
    let (host, port) = authority.split_at(authority.rfind(':').unwrap_or(authority.len()));
    Some(format_smolstr!("{scheme}://{star}{}{port}", host_to_ascii(host)?))
}

/// The host as browsers spell it (WHATWG URL, host serializing).
fn canonicalize_host(scheme: &str, host: &str) -> Result<SmolStr, OriginError> {
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| OriginError)?;
        return Ok(format_smolstr!("[{address}]"));
    }
    let host = host.to_ascii_lowercase_smolstr();
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    // Browsers parse such a host as an IPv4 address and send four decimal numbers.
    let must_be_ipv4 = default_port(scheme).is_some() && ends_in_number(&host);
    let is_host = host.len() <= 253
        && host.split('.').all(is_label)
        && (!must_be_ipv4 || host.parse::<Ipv4Addr>().is_ok());
    if is_host { Ok(host) } else { Err(OriginError) }
}

/// The "ends in a number checker" of the WHATWG URL standard.
fn ends_in_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    last.bytes().all(|byte| byte.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(is_hex)
}

#[cfg(test)]
mod tests;
