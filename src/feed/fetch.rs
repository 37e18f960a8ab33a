//! Fetches a list over HTTPS, over HTTP from this machine, or from a file.
//!
//! Refuses a list over the size that its feed allows. Verifies a list's digest and signature. This
//! module stores nothing and does not check the names.

mod http_client;
mod proxy;

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use minisign_verify::{PublicKey, Signature};
use sha2::{Digest, Sha256};

use self::http_client::send_get_request;
use super::error::FeedError;
use super::storage::FeedState;
use crate::support::memory;
use crate::support::regular_file::read_regular_file;
use crate::support::url_authority::{find_host, split_authority, without_user};

pub(super) use self::http_client::ClientSettings;
pub use self::proxy::ProxySettings;

/// The largest checksum or signature file, in bytes.
const MAX_CHECKSUM_OR_SIGNATURE_BYTES: u64 = 64 << 10;
/// The first part of a list in gzip that is decoded at once, in bytes. Each further part is as long
/// as what was decoded before.
const GZIP_PART_BYTES: u64 = 1 << 20;
/// The fault of a list that is truncated.
const TRUNCATED_LIST_FAULT: &str = "expected the whole list, but found a part";

/// Where riskgate fetches a list: a URL or a file.
#[derive(Clone, PartialEq, Eq)]
pub enum FeedLocation {
    /// `https://…`, or `http://…` on this machine.
    Web(String),
    /// A file.
    File(PathBuf),
}

impl FeedLocation {
    /// Parses a URL or a path. `None` if the text is neither, or is an `http://` URL of another
    /// machine: riskgate would fetch the list unencrypted.
    pub fn parse(text: &str) -> Option<FeedLocation> {
        if let Some(path) = text.strip_prefix("file://") {
            return path.starts_with('/').then(|| FeedLocation::File(PathBuf::from(path)));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return (!text.is_empty()).then(|| FeedLocation::File(PathBuf::from(text)));
        };
        let is_ascii_graphic = text.bytes().all(|byte| byte.is_ascii_graphic());
        let host = find_host(split_authority(rest).0).filter(|_| is_ascii_graphic)?;
        let is_loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_safe = scheme == "https" || (scheme == "http" && is_loopback);
        is_safe.then(|| FeedLocation::Web(text.to_owned()))
    }

    /// The whole URL, including a password or token that it may contain.
    pub(super) fn to_unredacted_text(&self) -> String {
        match self {
            FeedLocation::Web(url) => url.clone(),
            FeedLocation::File(path) => path.display().to_string(),
        }
    }

    /// The same URL or file with `suffix` appended to its path.
    fn with_path_suffix(&self, suffix: &str) -> FeedLocation {
        match self {
            FeedLocation::Web(url) => {
                let (path, rest) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
                FeedLocation::Web(format!("{path}{suffix}{rest}"))
            }
            FeedLocation::File(path) => {
                FeedLocation::File(PathBuf::from(format!("{}{suffix}", path.display())))
            }
        }
    }
}

impl fmt::Display for FeedLocation {
    /// Omits the user and the query, which may contain a password or token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedLocation::File(path) => write!(f, "{}", path.display()),
            FeedLocation::Web(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or_default();
                let (authority, rest) = split_authority(rest);
                let path = rest.split(['?', '#']).next().unwrap_or_default();
                write!(f, "{scheme}://{}{path}", without_user(authority))
            }
        }
    }
}

impl fmt::Debug for FeedLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of a fetch.
pub(super) enum FetchOutcome {
    /// The server answered 304: the list has not changed since the last fetch.
    NotModified,
    List(FetchedList),
}

/// A fetched list, and its HTTP validators (RFC 9110 section 8.8).
pub(super) struct FetchedList {
    pub bytes: Vec<u8>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

/// Fetches a list from a URL or a file. A request for a URL has the validators of `previous_state`,
/// so that the server can answer that the list has not changed. A file is always read.
pub(super) fn fetch_list(
    url: &FeedLocation,
    client: ClientSettings<'_>,
    previous_state: &FeedState,
    max_bytes: u64,
) -> Result<FetchOutcome, FeedError> {
    match url {
        FeedLocation::File(path) => {
            let bytes = read_list_file(path, max_bytes)?;
            Ok(FetchOutcome::List(FetchedList { bytes, etag: None, last_modified: None }))
        }
        FeedLocation::Web(text) => {
            fetch_list_over_http(url, text, client, previous_state, max_bytes)
        }
    }
}

fn read_list_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>, FeedError> {
    read_regular_file(path, max_bytes).map_err(|found| {
        FeedError::new(path.display().to_string(), format!("expected a list, but found {found}"))
    })
}

fn fetch_list_over_http(
    url: &FeedLocation,
    url_text: &str,
    client: ClientSettings<'_>,
    previous_state: &FeedState,
    max_bytes: u64,
) -> Result<FetchOutcome, FeedError> {
    let failed = |why: String| FeedError::new(url.to_string(), why);
    let mut fields = vec![("Accept-Encoding", "gzip")];
    fields.extend(previous_state.etag.as_deref().map(|etag| ("If-None-Match", etag)));
    fields.extend(previous_state.modified.as_deref().map(|at| ("If-Modified-Since", at)));
    let mut response = send_get_request(url_text, &fields, client).map_err(failed)?;
    match response.status {
        200 => {}
        304 if previous_state.etag.is_some() || previous_state.modified.is_some() => {
            return Ok(FetchOutcome::NotModified);
        }
        status => return Err(failed(format!("expected status 200, but found {status}"))),
    }
    let content_length = response.body.content_length();
    if content_length.is_some_and(|length| length > max_bytes) {
        let found = content_length.unwrap_or_default();
        return Err(failed(format!("expected at most {max_bytes} bytes, but found {found}")));
    }
    // The buffer grows by doubling. A list without a declared length is rarely long.
    const USUAL_BYTES: u64 = 1 << 20;
    memory::check_available(2 * content_length.unwrap_or(max_bytes.min(USUAL_BYTES)))
        .map_err(|found| failed(found.to_string()))?;
    let body = response.body.with_config().limit(max_bytes).read_to_vec();
    let bytes = body.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => {
            failed(format!("expected at most {max_bytes} bytes, but found more"))
        }
        error => {
            let found = http_client::describe_error(&error);
            failed(format!("expected the whole list, but found: {found}"))
        }
    })?;
    if content_length.is_some_and(|length| length != bytes.len() as u64) {
        return Err(failed(TRUNCATED_LIST_FAULT.to_owned()));
    }
    let bytes = match response.content_encoding.as_deref() {
        None | Some("identity") => {
            // If the response has neither Content-Length nor Transfer-Encoding, the list ends where
            // the connection ends. Such a list may be truncated, so it must end with a line feed
            // or `]`.
            if !response.declares_its_end && !has_complete_end(&bytes) {
                return Err(failed(TRUNCATED_LIST_FAULT.to_owned()));
            }
            bytes
        }
        Some("gzip" | "x-gzip") => decode_gzip(&bytes, max_bytes).map_err(failed)?,
        Some(other) => {
            let expected = "a list without Content-Encoding or in gzip, as riskgate asked for";
            return Err(failed(format!("expected {expected}, but found {other:?}")));
        }
    };
    let (etag, last_modified) = (response.etag, response.last_modified);
    Ok(FetchOutcome::List(FetchedList { bytes, etag, last_modified }))
}

/// Whether a list ends with a line feed, or with the `]` of JSON.
fn has_complete_end(bytes: &[u8]) -> bool {
    bytes.trim_ascii_end().last() == Some(&b']') || bytes.ends_with(b"\n")
}

/// Decodes a list in gzip. The checksum of gzip shows whether the list is whole. The error says
/// what was expected.
fn decode_gzip(encoded: &[u8], max_bytes: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut decoder = MultiGzDecoder::new(encoded).take(max_bytes.saturating_add(1));
    loop {
        // The length of the decoded list is not known before. So each part is checked against the
        // memory that is free at that moment.
        let part = (bytes.len() as u64).max(GZIP_PART_BYTES);
        memory::check_available(bytes.len() as u64 + 2 * part)
            .map_err(|error| error.to_string())?;
        match decoder.by_ref().take(part).read_to_end(&mut bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(TRUNCATED_LIST_FAULT.to_owned());
            }
            Err(error) => {
                return Err(format!("expected the whole list in gzip, but found: {error}"));
            }
            Ok(_) if bytes.len() as u64 > max_bytes => {
                return Err(format!("expected at most {max_bytes} bytes, but found more"));
            }
            Ok(0) => return Ok(bytes),
            Ok(_) => {}
        }
    }
}

/// The SHA-256 of a list, in lower-case hexadecimal.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Fetches the digest that is published at `url`. Fails unless the published digest is `digest`,
/// that of the list.
pub(super) fn check_published_digest(
    url: &FeedLocation,
    client: ClientSettings<'_>,
    digest: &str,
) -> Result<(), FeedError> {
    let text = fetch_verification_text(url, client)?;
    let failed = |why: &str| Err(FeedError::new(url.to_string(), why));
    match parse_published_digest(&text) {
        None => failed("expected a SHA-256 in hexadecimal, but found another text"),
        Some(published) if published == digest => Ok(()),
        Some(_) => failed(&format!(
            "expected a list with the published SHA-256, but found SHA-256 {digest}"
        )),
    }
}

/// The digest in the first line of a text, as `sha256sum` writes the line, or `sha256sum --tag` and
/// openssl: `SHA256 (list.txt) = …`.
fn parse_published_digest(text: &str) -> Option<String> {
    let line = text.trim_start().lines().next()?;
    let is_digest = |word: &&str| word.len() == 64 && word.bytes().all(|it| it.is_ascii_hexdigit());
    let first = line.split_ascii_whitespace().next().filter(is_digest);
    let behind_sign = || line.rsplit_once('=').map(|(_, last)| last.trim()).filter(is_digest);
    first.or_else(behind_sign).map(str::to_ascii_lowercase)
}

/// Fetches the list's minisign signature and verifies it. Fails unless this key has signed this
/// list.
pub(super) fn check_signature(
    list_url: &FeedLocation,
    client: ClientSettings<'_>,
    public_key: &str,
    list_bytes: &[u8],
) -> Result<(), FeedError> {
    let at = list_url.with_path_suffix(".minisig");
    let wrong = |error: minisign_verify::Error| {
        let why = format!("expected a signature of this list by public_key, but found: {error}");
        FeedError::new(at.to_string(), why)
    };
    let signature = Signature::decode(&fetch_verification_text(&at, client)?).map_err(wrong)?;
    let key = PublicKey::from_base64(public_key).map_err(wrong)?;
    key.verify(list_bytes, &signature, false).map_err(wrong)
}

/// Whether a text is a minisign public key.
pub fn is_minisign_public_key(text: &str) -> bool {
    PublicKey::from_base64(text).is_ok()
}

/// Fetches a checksum or a signature.
fn fetch_verification_text(
    url: &FeedLocation,
    client: ClientSettings<'_>,
) -> Result<String, FeedError> {
    // Without validators, so that the server never answers 304.
    let empty_state = FeedState::default();
    let FetchOutcome::List(fetched) =
        fetch_list(url, client, &empty_state, MAX_CHECKSUM_OR_SIGNATURE_BYTES)?
    else {
        return Ok(String::new());
    };
    String::from_utf8(fetched.bytes)
        .map_err(|_| FeedError::new(url.to_string(), "expected UTF-8, but found other bytes"))
}

#[cfg(test)]
mod tests;
