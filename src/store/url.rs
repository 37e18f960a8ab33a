//! The address of a store: the setting `store.url`.

use std::path::PathBuf;

use siphasher::sip::SipHasher13;

use super::error::StoreError;
use super::server_list_url::{
    ClusterUrl, SentinelUrl, is_name_byte, is_valid_for_redis_crate, split_user_info,
};

/// The schemes of `store.url`. `expected_form` has the details of the forms.
pub const STORE_URL_SYNTAX: &str = "sqlite:PATH, redis://…, redis+sentinel://… or \
     redis+cluster://…, or with TLS rediss://…, rediss+sentinel://… or rediss+cluster://…";

/// The form of the addresses of each scheme.
const FORMS: [(&str, &str); 4] = [
    ("sqlite:", "sqlite:PATH"),
    ("redis://", "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]"),
    (
        "redis+sentinel://",
        "redis+sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT/SERVICE[/DATABASE]",
    ),
    ("redis+cluster://", "redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT"),
];

/// A parsed `store.url`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `sqlite:PATH`, one file on the machine of the gateway.
    Sqlite(PathBuf),
    /// `redis://`, `redis+sentinel://` or `redis+cluster://`; with TLS `rediss` for `redis`.
    Redis(RedisUrl),
}

/// The address of a Redis or Valkey server, of the Sentinels that name it, or of a Cluster. Its
/// password is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// The address as the config has it.
    text: String,
    parts: RedisUrlParts,
}

/// What a [`RedisUrl`] is the address of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RedisUrlParts {
    Server,
    Sentinels(SentinelUrl),
    Cluster(ClusterUrl),
}

impl StoreUrl {
    /// Parses the setting.
    pub fn parse(text: &str) -> Result<StoreUrl, StoreError> {
        let url_error =
            || StoreError::InvalidUrl { expected: expected_form(text), found: mark_user(text) };
        if text.trim() != text {
            return Err(StoreError::InvalidUrl {
                expected: "an address without a blank at its beginning or end",
                found: mark_user(text),
            });
        }
        if let Some(path) = text.strip_prefix("sqlite:") {
            // A path is shown in full, so URLs with passwords are refused here.
            let is_url = path.contains("//") && path.contains('@') || path.starts_with("file:");
            // Other programs read `sqlite://state/x.db` as a path below the working directory.
            let has_host = path.starts_with("//") && !path.starts_with("///");
            // No shell replaces `~` here, so the path would lead into a folder of this name.
            let is_of_home = path == "~" || path.starts_with("~/");
            let names_no_file =
                path.is_empty() || path.ends_with('/') || path == ":memory:" || path.contains('\0');
            return match names_no_file || is_of_home || path.contains('?') || is_url || has_host {
                true => Err(url_error()),
                false => Ok(StoreUrl::Sqlite(PathBuf::from(path))),
            };
        }
        if has_malformed_escape(text) {
            return Err(StoreError::InvalidUrl {
                expected: "%25 for each % in the user and the password",
                found: redact_url(text),
            });
        }
        // A fragment could disable the verification of certificates.
        if text.contains(['#', '?']) {
            return Err(url_error());
        }
        let has_known_form = text.starts_with("redis://") || text.starts_with("rediss://");
        let parts = match has_known_form && is_valid_for_redis_crate(text) {
            true => Some(RedisUrlParts::Server),
            false => SentinelUrl::parse(text)
                .map(RedisUrlParts::Sentinels)
                .or_else(|| ClusterUrl::parse(text).map(RedisUrlParts::Cluster)),
        };
        let parts = parts.ok_or_else(url_error)?;
        Ok(StoreUrl::Redis(RedisUrl { text: text.to_owned(), parts }))
    }
}

/// Returns true if the user or the password of an address has a `%` without two hexadecimal digits
/// behind it. The server would get such a `%` as it is, or another character.
pub fn has_malformed_escape(text: &str) -> bool {
    let behind_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (user_info, _) = split_user_info(behind_scheme);
    user_info.split('%').skip(1).any(|rest| {
        let digits = rest.as_bytes().get(..2);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

impl RedisUrl {
    /// Returns true if the connection is encrypted.
    pub fn has_tls(&self) -> bool {
        self.text.starts_with("rediss")
    }

    /// The address without user and password.
    pub fn without_credentials(&self) -> String {
        match &self.parts {
            RedisUrlParts::Server => redact_url(&self.text),
            RedisUrlParts::Sentinels(sentinels) => sentinels.to_string(),
            RedisUrlParts::Cluster(cluster) => cluster.to_string(),
        }
    }

    /// Returns true if this is the address of Sentinels.
    pub fn names_sentinels(&self) -> bool {
        matches!(self.parts, RedisUrlParts::Sentinels(_))
    }

    pub(super) fn parts(&self) -> &RedisUrlParts {
        &self.parts
    }

    /// The address with user and password, for the redis crate. Only for the address of a server.
    pub(super) fn with_credentials(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A reload compares this text of the old and the new address. The fingerprint changes with
        // the password, and does not show it.
        let fingerprint = SipHasher13::new().hash(self.text.as_bytes());
        write!(f, "{} ({fingerprint:016x})", self.without_credentials())
    }
}

/// Returns the form of an address with this scheme; without a known scheme, all schemes.
fn expected_form(text: &str) -> &'static str {
    let text = text.to_ascii_lowercase();
    let text = text.strip_prefix("rediss").map_or(text.clone(), |rest| format!("redis{rest}"));
    FORMS.iter().find(|(scheme, _)| text.starts_with(scheme)).map_or(STORE_URL_SYNTAX, |it| it.1)
}

/// Removes everything that may be a password from the address of a server, also from a malformed
/// one. The scheme, the host, the port and the database stay if each has the usual form.
pub fn redact_url(text: &str) -> String {
    let (user_info, rest) = text.rsplit_once('@').map_or(("", text), |(user, rest)| (user, rest));
    // A password may contain `://`. So the text before `://` is shown only if it consists of ASCII
    // letters and digits, apart from `+sentinel` and `+cluster`.
    let (scheme, rest) = match (scheme_prefix(user_info), scheme_prefix(rest)) {
        (Some(scheme), _) => (scheme, rest),
        (None, Some(scheme)) if user_info.is_empty() => (scheme, &rest[scheme.len()..]),
        _ if user_info.is_empty() => ("", rest),
        _ => ("…@", rest),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    format!("{scheme}{}{}", redact_authority(authority), redact_path(path))
}

/// Like [`redact_url`], but shows that the URL has a user or a password.
fn mark_user(text: &str) -> String {
    let shown = redact_url(text);
    match shown.split_once("://") {
        Some((scheme, rest)) if text.contains('@') => format!("{scheme}://…@{rest}"),
        _ => shown,
    }
}

/// The scheme at the start of a text, with its `://`; `None` if the text starts with no scheme.
fn scheme_prefix(text: &str) -> Option<&str> {
    let at = text.find("://")?;
    let name = text[..at].trim_end_matches("+sentinel").trim_end_matches("+cluster");
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
    is_name.then(|| &text[..at + 3])
}

/// A host and its port; anything else is left out.
fn redact_authority(authority: &str) -> String {
    let is_name = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match inner {
            Some(inner) => inner.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b)),
            // A wildcard stands in an origin.
            None => host.strip_prefix("*.").unwrap_or(host).bytes().all(is_name_byte),
        }
    };
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    match authority.rsplit_once(':') {
        _ if is_name(authority) => authority.to_owned(),
        Some((host, port)) if is_name(host) && is_port(port) => authority.to_owned(),
        Some((host, _)) if is_name(host) => format!("{host}:…"),
        _ => "…".to_owned(),
    }
}

/// A database number; anything else is left out.
fn redact_path(path: &str) -> &str {
    let is_database = |name: &str| name.len() <= 5 && name.bytes().all(|b| b.is_ascii_digit());
    match path.strip_prefix('/') {
        _ if path.is_empty() => "",
        Some(name) if is_database(name) => path,
        Some(_) => "/…",
        None => "…",
    }
}

#[cfg(test)]
mod tests;
