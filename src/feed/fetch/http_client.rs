//! Sends the request for a list, by the proxy of the environment, and follows redirects.
//!
//! Owns the maximum time of a fetch, and the rule which server gets the user and the password of a
//! URL: the server of this URL alone. Errors contain no URL, because a URL may contain a token.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::proxy::{ProxySettings, UsedProxy};
use crate::model::domain::percent_decode;
use crate::support::trusted_authorities::{client_tls_config, is_authority_unknown};
use crate::support::url_authority::{find_host, split_authority, without_user};

/// How long one fetch may take, from the DNS look-up to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_REDIRECTS: u32 = 5;
const HTTPS_PORT: u16 = 443;
/// The statuses that name another URL for the same request.
const REDIRECT_STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

/// What riskgate needs for its connections to list servers.
#[derive(Clone, Copy)]
pub(in crate::feed) struct ClientSettings<'a> {
    /// See `Feed::tls_ca`.
    pub tls_ca: Option<&'a Path>,
    pub proxy: &'a ProxySettings,
}

/// The answer of a list server.
pub(super) struct HttpResponse {
    pub status: u16,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// In lower case.
    pub content_encoding: Option<String>,
    location: Option<String>,
    /// Whether the header says where the body ends. Otherwise, the body ends with the connection.
    pub declares_its_end: bool,
    pub body: ureq::Body,
}

/// Sends a GET request with these fields. Follows redirects from `https://` to `https://`.
///
/// # Errors
/// If a setting or the URL can't be used, if a server does not answer, or if riskgate can't follow
/// its redirect. The error has no URL.
pub(super) fn send_get_request(
    url: &str,
    fields: &[(&str, &str)],
    settings: ClientSettings<'_>,
) -> Result<HttpResponse, String> {
    let is_https = url.starts_with("https://");
    let mut config = ureq::Agent::config_builder()
        .https_only(is_https)
        // riskgate follows redirects itself, so that it knows where it sends the password.
        .max_redirects(0)
        .http_status_as_error(false)
        .user_agent(concat!("riskgate/", env!("CARGO_PKG_VERSION")));
    if is_https {
        let tls = client_tls_config(settings.tls_ca).map_err(|fault| format!("tls_ca: {fault}"))?;
        config = config.tls_config(tls);
    }
    let config = config.proxy(None).build();
    let deadline = Instant::now() + FETCH_TIMEOUT;
    let mut target = UrlWithCredentials::parse(url)?;
    for _ in 0..=MAX_REDIRECTS {
        // Requests to this machine never go through a proxy.
        let proxy = match is_https {
            true => target.find_proxy(settings.proxy)?,
            false => None,
        };
        let response = send_to(&target, fields, &config.new_agent(), proxy.as_ref(), deadline)?;
        let is_redirect = is_https && REDIRECT_STATUSES.contains(&response.status);
        match &response.location {
            Some(location) if is_redirect => target = target.follow(location)?,
            _ => return Ok(response),
        }
    }
    Err(format!("expected at most {MAX_REDIRECTS} redirects, but found more"))
}

fn send_to(
    target: &UrlWithCredentials,
    fields: &[(&str, &str)],
    agent: &ureq::Agent,
    proxy: Option<&UsedProxy>,
    deadline: Instant,
) -> Result<HttpResponse, String> {
    let time_left = deadline.saturating_duration_since(Instant::now());
    let mut request = agent.get(&target.url);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    if let Some(authorization) = &target.authorization {
        request = request.header("Authorization", authorization);
    }
    let request = request
        .config()
        .proxy(proxy.map(|proxy| proxy.client_setting.clone()))
        .timeout_global(Some(time_left))
        .build();
    let response = request.call().map_err(|error| describe_failed_request(&error, proxy))?;
    let field = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
    Ok(HttpResponse {
        status: response.status().as_u16(),
        etag: field("etag"),
        last_modified: field("last-modified"),
        content_encoding: field("content-encoding").map(|value| value.to_ascii_lowercase()),
        location: field("location"),
        declares_its_end: field("content-length").or(field("transfer-encoding")).is_some(),
        body: response.into_body(),
    })
}

fn describe_failed_request(error: &ureq::Error, proxy: Option<&UsedProxy>) -> String {
    let advice = match is_authority_unknown(error) {
        true => "; if a proxy inspects TLS, name its authority in tls_ca of the feed",
        false => "",
    };
    let by = proxy.map(|proxy| format!(", by the proxy {}", proxy.host_and_port));
    let found = describe_error(error);
    format!("expected an answer, but found {found}{}{advice}", by.unwrap_or_default())
}

/// What riskgate found in place of an answer, or of the rest of the answer.
pub(super) fn describe_error(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => {
            format!("no whole answer within {} s", FETCH_TIMEOUT.as_secs())
        }
        ureq::Error::HostNotFound => "no such host".to_owned(),
        ureq::Error::ConnectProxyFailed(why) => {
            // The text ends with the status, twice: `407/407`.
            let status = why.rsplit('/').next().and_then(|last| last.parse::<u16>().ok());
            status.map_or_else(|| "no answer".to_owned(), |status| format!("status {status}"))
        }
        ureq::Error::Io(error) => redact_urls(&error.to_string()),
        other => redact_urls(&other.to_string()),
    }
}

/// Replaces each URL in an error message.
fn redact_urls(text: &str) -> String {
    let redact = |word: &str| if word.contains("://") { "the URL".to_owned() } else { word.into() };
    text.split(' ').map(redact).collect::<Vec<_>>().join(" ")
}

/// The URL of a request, and the value of `Authorization` that the URL's user gives.
struct UrlWithCredentials {
    /// The URL without its user and its fragment.
    url: String,
    authorization: Option<String>,
}

impl UrlWithCredentials {
    fn parse(url: &str) -> Result<UrlWithCredentials, String> {
        let url = url.split('#').next().unwrap_or_default();
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (authority, path) = split_authority(rest);
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        let authorization = user.filter(|user| !user.is_empty()).map(encode_authorization);
        Ok(UrlWithCredentials {
            url: format!("{scheme}://{}{path}", without_user(authority)),
            authorization: authorization.transpose()?,
        })
    }

    /// The target of a redirect from this target.
    fn follow(&self, location: &str) -> Result<UrlWithCredentials, String> {
        let url = resolve_reference(&self.url, location)
            .ok_or("expected a redirect to a URL, but found another text")?;
        let mut target = UrlWithCredentials::parse(&url)?;
        if !target.url.starts_with("https://") {
            return Err("expected a redirect to https://, but found another scheme".to_owned());
        }
        if target.authorization.is_none() && target.host_and_port() == self.host_and_port() {
            target.authorization.clone_from(&self.authorization);
        }
        Ok(target)
    }

    /// The host in lower case without brackets, and the port.
    fn host_and_port(&self) -> (String, u16) {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let authority = split_authority(rest).0;
        let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let host = find_host(authority).unwrap_or_default().to_ascii_lowercase();
        (host, port.unwrap_or(HTTPS_PORT))
    }

    fn find_proxy(&self, settings: &ProxySettings) -> Result<Option<UsedProxy>, String> {
        let (host, port) = self.host_and_port();
        settings.proxy_for(&host, port)
    }
}

/// Turns `user:password` of a URL into the value of an `Authorization` field (RFC 7617).
fn encode_authorization(user: &str) -> Result<String, String> {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let decode = |text: &str| {
        percent_decode(text.as_bytes())
            .map_err(|expected| format!("{expected}, in the user or password of the URL"))
    };
    let credentials = [decode(name)?, b":".to_vec(), decode(password)?].concat();
    Ok(format!("Basic {}", STANDARD.encode(credentials)))
}

/// Resolves the target of a redirect against the URL of the request (RFC 3986 section 5.2). `None`
/// if the result is no URL with a host.
fn resolve_reference(base: &str, reference: &str) -> Option<String> {
    let reference = reference
        .split('#')
        .next()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))?;
    let (scheme, rest) = base.split_once("://")?;
    let (authority, base_target) = split_authority(rest);
    let base_path = base_target.split('?').next().unwrap_or_default();
    let joined = match reference {
        "" => base.to_owned(),
        _ if has_scheme(reference) => reference.to_owned(),
        _ if reference.starts_with("//") => format!("{scheme}:{reference}"),
        _ if reference.starts_with('?') => format!("{scheme}://{authority}{base_path}{reference}"),
        _ if reference.starts_with('/') => format!("{scheme}://{authority}{reference}"),
        _ => {
            let folder = base_path.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{folder}/{reference}")
        }
    };
    let (scheme, rest) = joined.split_once("://")?;
    let (authority, target) = split_authority(rest);
    find_host(authority)?;
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    Some(format!(
        "{}://{authority}{}{query}",
        scheme.to_ascii_lowercase(),
        remove_dot_segments(path)
    ))
}

/// Whether a reference begins with a scheme, such as `https:`.
fn has_scheme(reference: &str) -> bool {
    reference.split_once(':').is_some_and(|(scheme, _)| {
        let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(is_of_scheme)
    })
}

/// Applies the segments `.` and `..` of a path (RFC 3986 section 5.2.4).
fn remove_dot_segments(path: &str) -> String {
    let mut kept = Vec::new();
    let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    for (at, segment) in segments.iter().enumerate() {
        match *segment {
            "." => {}
            ".." => drop(kept.pop()),
            other => kept.push(other),
        }
        // A path that ends with such a segment is that of a folder.
        if at + 1 == segments.len() && matches!(*segment, "." | "..") {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests;
