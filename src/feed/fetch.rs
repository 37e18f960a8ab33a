//! Fetches a list over HTTPS, over HTTP from this machine, or from a file.
//!
//! Owns the limits of size and time, and verifies a list's digest and signature. This module stores
//! nothing and does not check the names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use minisign_verify::{PublicKey, Signature};
use sha2::{Digest, Sha256};
use ureq::tls::{RootCerts, TlsConfig};

use super::error::FeedError;
use super::storage::FeedState;
use crate::support::regular_file::read_regular_file;

/// How long one fetch may take, from the DNS look-up to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest checksum or signature file, in bytes.
const MAX_VERIFICATION_BYTES: u64 = 64 << 10;
const MAX_REDIRECTS: u32 = 5;

/// Where riskgate fetches a list: a URL or a file.
#[derive(Clone, PartialEq, Eq)]
pub enum FeedUrl {
    /// `https://…`, or `http://…` on this machine.
    Web(String),
    /// A file.
    File(PathBuf),
}

impl FeedUrl {
    /// Parses a URL or a path. `None` if the text is neither, or is an `http://` URL of another
    /// machine: riskgate would fetch it unencrypted.
    pub fn parse(text: &str) -> Option<FeedUrl> {
        if let Some(path) = text.strip_prefix("file://") {
            return path.starts_with('/').then(|| FeedUrl::File(PathBuf::from(path)));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return (!text.is_empty()).then(|| FeedUrl::File(PathBuf::from(text)));
        };
        let is_ascii_graphic = text.bytes().all(|byte| byte.is_ascii_graphic());
        let host = host_of(rest).filter(|_| is_ascii_graphic)?;
        let is_loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_safe = scheme == "https" || (scheme == "http" && is_loopback);
        is_safe.then(|| FeedUrl::Web(text.to_owned()))
    }

    /// The whole URL, including a password or token that it may contain.
    pub(super) fn to_unredacted(&self) -> String {
        match self {
            FeedUrl::Web(url) => url.clone(),
            FeedUrl::File(path) => path.display().to_string(),
        }
    }

    /// The same URL or file with `suffix` appended to its path.
    fn with_suffix(&self, suffix: &str) -> FeedUrl {
        match self {
            FeedUrl::Web(url) => {
                let (path, rest) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
                FeedUrl::Web(format!("{path}{suffix}{rest}"))
            }
            FeedUrl::File(path) => {
                FeedUrl::File(PathBuf::from(format!("{}{suffix}", path.display())))
            }
        }
    }
}

/// The host of a URL without its scheme (RFC 3986 section 3.2).
fn host_of(after_scheme: &str) -> Option<&str> {
    let authority = after_scheme.split(['/', '?', '#']).next()?;
    let host_and_port = authority.rsplit('@').next()?;
    let host = match host_and_port.strip_prefix('[') {
        Some(address) => address.split_once(']')?.0,
        None => host_and_port.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

impl fmt::Display for FeedUrl {
    /// Omits the user and the query, which may contain a password or token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedUrl::File(path) => write!(f, "{}", path.display()),
            FeedUrl::Web(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or_default();
                let without_query = rest.split(['?', '#']).next().unwrap_or_default();
                let end = without_query.find('/').unwrap_or(without_query.len());
                let host = without_query[..end].rsplit('@').next().unwrap_or_default();
                write!(f, "{scheme}://{host}{}", &without_query[end..])
            }
        }
    }
}

impl fmt::Debug for FeedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of a fetch.
pub(super) enum FetchOutcome {
    /// The list has not changed since the last fetch.
    NotModified,
    List(FetchedList),
}

/// A fetched list, and its HTTP validators (RFC 9110 section 8.8).
pub(super) struct FetchedList {
    pub bytes: Vec<u8>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

/// Fetches a list. For a URL, the request is conditional on the validators in `state`. A file is
/// always read.
pub(super) fn fetch(
    url: &FeedUrl,
    state: &FeedState,
    max_bytes: u64,
) -> Result<FetchOutcome, FeedError> {
    match url {
        FeedUrl::File(path) => {
            let bytes = read_file(path, max_bytes)?;
            Ok(FetchOutcome::List(FetchedList { bytes, etag: None, last_modified: None }))
        }
        FeedUrl::Web(text) => fetch_web(url, text, state, max_bytes),
    }
}

fn read_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>, FeedError> {
    read_regular_file(path, max_bytes).map_err(|found| {
        FeedError::new(path.display().to_string(), format!("expected a list, but found {found}"))
    })
}

fn create_agent(is_https: bool) -> ureq::Agent {
    // The server's certificate is verified, and redirects must stay on HTTPS.
    let tls = TlsConfig::builder().root_certs(RootCerts::WebPki).build();
    let mut config = ureq::Agent::config_builder();
    if !is_https {
        // Requests to this machine never go through a proxy.
        config = config.proxy(None);
    }
    let config = config
        .timeout_global(Some(FETCH_TIMEOUT))
        .https_only(is_https)
        .max_redirects(if is_https { MAX_REDIRECTS } else { 0 })
        .http_status_as_error(false)
        .user_agent(concat!("riskgate/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls);
    config.build().into()
}

fn fetch_web(
    url: &FeedUrl,
    text: &str,
    state: &FeedState,
    max_bytes: u64,
) -> Result<FetchOutcome, FeedError> {
    let failed = |why: String| FeedError::new(url.to_string(), why);
    let agent = create_agent(text.starts_with("https://"));
    let mut request = agent.get(text);
    if let Some(etag) = &state.etag {
        request = request.header("If-None-Match", etag);
    }
    if let Some(modified) = &state.modified {
        request = request.header("If-Modified-Since", modified);
    }
    let mut response = request.call().map_err(|error| failed(redact_urls(&error.to_string())))?;
    match response.status().as_u16() {
        200 => {}
        304 if state.etag.is_some() || state.modified.is_some() => {
            return Ok(FetchOutcome::NotModified);
        }
        status => return Err(failed(format!("expected status 200, but found {status}"))),
    }
    let header_value = |name: &str| {
        let value = response.headers().get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let (etag, modified) = (header_value("etag"), header_value("last-modified"));
    let content_length = response.body().content_length();
    let declares_its_end =
        header_value("content-length").is_some() || header_value("transfer-encoding").is_some();
    if content_length.is_some_and(|length| length > max_bytes) {
        let found = content_length.unwrap_or_default();
        return Err(failed(format!("expected at most {max_bytes} bytes, but found {found}")));
    }
    let body = response.body_mut().with_config().limit(max_bytes).read_to_vec();
    let bytes = body.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => {
            failed(format!("expected at most {max_bytes} bytes, but found more"))
        }
        error => failed(format!("expected the whole list, but found: {error}")),
    })?;
    // If the response declares no length, the list ends where the connection ends. Then its last
    // line may be truncated, unless it ends with a line feed or `]`.
    let ends_completely = match bytes.trim_ascii_end().last() {
        Some(b']') => true,
        _ => bytes.ends_with(b"\n"),
    };
    if content_length.is_some_and(|length| length != bytes.len() as u64)
        || (!declares_its_end && !ends_completely)
    {
        return Err(failed("expected the whole list, but found a part".to_owned()));
    }
    Ok(FetchOutcome::List(FetchedList { bytes, etag, last_modified: modified }))
}

/// An error message without URLs, because a URL may contain a token.
fn redact_urls(text: &str) -> String {
    let redact =
        |word: &str| if word.contains("://") { "the URL".to_owned() } else { word.to_owned() };
    text.split(' ').map(redact).collect::<Vec<_>>().join(" ")
}

/// The SHA-256 of a list, in lower-case hexadecimal.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Compares the list's digest with the digest that is published at `url`.
pub(super) fn check_digest(url: &FeedUrl, digest: &str) -> Result<(), FeedError> {
    let text = fetch_verification_text(url)?;
    let expected = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    if expected == digest {
        return Ok(());
    }
    let why = format!("expected a list with the published SHA-256, but found SHA-256 {digest}");
    Err(FeedError::new(url.to_string(), why))
}

/// Verifies the list's minisign signature.
pub(super) fn check_signature(
    list_url: &FeedUrl,
    public_key: &str,
    bytes: &[u8],
) -> Result<(), FeedError> {
    let at = list_url.with_suffix(".minisig");
    let wrong = |error: minisign_verify::Error| {
        let why = format!("expected a signature of this list by public_key, but found: {error}");
        FeedError::new(at.to_string(), why)
    };
    let signature = Signature::decode(&fetch_verification_text(&at)?).map_err(wrong)?;
    let key = PublicKey::from_base64(public_key).map_err(wrong)?;
    key.verify(bytes, &signature, false).map_err(wrong)
}

/// Whether a text is a minisign public key.
pub fn is_minisign_public_key(text: &str) -> bool {
    PublicKey::from_base64(text).is_ok()
}

/// Fetches a checksum or a signature.
fn fetch_verification_text(url: &FeedUrl) -> Result<String, FeedError> {
    // Without validators, so that the server never answers 304.
    let empty_state = FeedState::default();
    let FetchOutcome::List(fetched) = fetch(url, &empty_state, MAX_VERIFICATION_BYTES)? else {
        return Ok(String::new());
    };
    String::from_utf8(fetched.bytes)
        .map_err(|_| FeedError::new(url.to_string(), "expected UTF-8, but found other bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_urls_are_allowed_for_loopback_hosts_only() {
        for good in [
            "https://lists.example/daily.txt",
            "http://127.0.0.1:8000/x",
            "http://[::1]/x",
            "http://localhost/x",
            "file:///var/lib/list.txt",
            "lists/daily.txt",
        ] {
            assert!(FeedUrl::parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "http://lists.example/x",
            "http://127.0.0.1.example/x",
            "ftp://a/b",
            "file://x",
            "https://",
            "http://localhost@lists.example/",
            "https://a b/",
        ] {
            assert!(FeedUrl::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_displayed_url_omits_user_and_query() {
        let url = FeedUrl::parse("https://me:word@lists.example/a/b?token=t#x").unwrap();
        assert_eq!(format!("{url} {url:?}"), "https://lists.example/a/b https://lists.example/a/b");
    }
}
