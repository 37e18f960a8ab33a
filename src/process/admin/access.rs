//! Who may use the admin listener: tokens, their scopes, and the checks against pages of other
//! origins.
//!
//! Clients send a token in `Authorization`. A browser never adds a token by itself, so a page of
//! another origin can't use the operator's token. If no token is configured, riskgate requires a
//! listener on loopback and a `Host` that names loopback: a page that reaches the listener by DNS
//! rebinding sends another `Host`.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use crate::config::{AdminToken, TokenScope};
use crate::keys::sha256;
use crate::message::request_head::bearer_credentials;
use crate::model::month::format_rfc3339;

/// The result of judging the credentials of a request.
#[derive(Clone, Debug)]
pub(super) enum Access {
    /// No token is configured, the listener is on loopback, and `Host` names loopback.
    Open,
    /// The request has this valid token.
    Token(AdminToken),
    /// The request needs a token, and has none.
    Missing,
    /// The request has a token that is not configured.
    Unknown,
    /// The request has this token, which has expired.
    Expired(AdminToken),
    /// The request has this token, which expires, and no clock has told the time yet.
    NoTime(AdminToken),
}

impl Access {
    /// Judges the credentials of a request. `unix_now` is `None` if no clock has told the time yet.
    pub(super) fn from_request(
        tokens: &[AdminToken],
        listens_on_loopback: bool,
        headers: &HeaderMap,
        unix_now: Option<i64>,
    ) -> Access {
        let Some(sent) = bearer_token(headers) else {
            let is_open = tokens.is_empty() && listens_on_loopback && has_loopback_host(headers);
            return if is_open { Access::Open } else { Access::Missing };
        };
        let digest = sha256(sent);
        // All tokens are compared, so that the duration does not show which token matches.
        let matching = tokens.iter().fold(None, |found, token| {
            let is_same: bool = token.digest.ct_eq(&digest).into();
            if is_same { Some(token) } else { found }
        });
        let Some(token) = matching.cloned() else { return Access::Unknown };
        match (token.expires_at, unix_now) {
            (Some(_), None) => Access::NoTime(token),
            (Some(end), Some(now)) if end <= now => Access::Expired(token),
            _ => Access::Token(token),
        }
    }

    /// Returns true if the request may read what concerns all accounts.
    pub(super) fn may_read_all_accounts(&self) -> bool {
        match self {
            Access::Open => true,
            Access::Token(token) => !matches!(token.scope, TokenScope::Account(_)),
            Access::Missing | Access::Unknown | Access::Expired(_) | Access::NoTime(_) => false,
        }
    }

    /// Returns the token, if its scope allows changes.
    pub(super) fn write_token(&self) -> Option<&AdminToken> {
        match self {
            Access::Token(token) if token.scope == TokenScope::Write => Some(token),
            _ => None,
        }
    }

    /// Returns the account to which the scope of the token is restricted; `None` if the request has
    /// no such token.
    pub(super) fn only_account(&self) -> Option<&str> {
        match self {
            Access::Token(AdminToken { scope: TokenScope::Account(account), .. }) => Some(account),
            _ => None,
        }
    }

    /// Returns true if the request has an invalid token, or needs a token and has none.
    pub(super) fn is_unauthenticated(&self) -> bool {
        !matches!(self, Access::Open | Access::Token(_))
    }

    /// Renders the access for the page, which asks the admin API what its token may do.
    pub(super) fn to_json(&self) -> Value {
        let (state, token) = match self {
            Access::Open => ("open", None),
            Access::Token(token) => ("authorized", Some(token)),
            Access::Missing => ("missing", None),
            Access::Unknown => ("unknown", None),
            Access::Expired(token) => ("expired", Some(token)),
            Access::NoTime(token) => ("no_time", Some(token)),
        };
        let scope = token.map(|token| match &token.scope {
            TokenScope::Read => ("read", None),
            TokenScope::Write => ("write", None),
            TokenScope::Account(account) => ("account", Some(account)),
        });
        json!({
            "state": state,
            "token": token.map(|token| &token.name),
            "scope": scope.map(|(scope, _)| scope),
            "account": scope.and_then(|(_, account)| account),
            "expires_at": token.and_then(|token| token.expires_at).map(format_rfc3339),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }
}

/// Returns the text of the token in `Authorization`.
pub(super) fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    bearer_credentials(headers.get_all(AUTHORIZATION).iter().map(http::HeaderValue::as_bytes))
}

/// Returns true if a page of another origin may have made the request. Browsers send `Origin` with
/// each request whose method is not GET or HEAD. Newer browsers send `Sec-Fetch-Site` with each
/// request to loopback or over TLS.
pub(super) fn may_be_cross_origin(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let is_other_origin = |origin: &http::HeaderValue| {
        let origin = origin.as_bytes();
        let scheme = [&b"http://"[..], b"https://"].into_iter().find(|it| origin.starts_with(it));
        scheme.is_none_or(|scheme| !origin[scheme.len()..].eq_ignore_ascii_case(host))
    };
    let is_other_site =
        |site: &http::HeaderValue| !matches!(site.as_bytes(), b"same-origin" | b"none");
    headers.get_all(ORIGIN).iter().any(is_other_origin)
        || headers.get_all("sec-fetch-site").iter().any(is_other_site)
}

/// Returns true if `Host` names loopback.
pub(super) fn has_loopback_host(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
