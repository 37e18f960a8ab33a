//! The HTTP proxy that the environment names, and the hosts that riskgate reaches without it.
//!
//! A value that names no usable proxy is a fault: if riskgate ignored the value, it would connect
//! to the internet directly, although the operator wants a proxy. No text of this module contains
//! the user or the password of a proxy.

use std::fmt;

/// The variables that may name the proxy of an `https://` URL. The first that is not empty counts.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];
/// The variables that may name the hosts without a proxy. The first that is set counts.
const NO_PROXY_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// What the environment says about proxies.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxySettings {
    /// The variable that names the proxy, and its value.
    proxy: Option<(&'static str, String)>,
    /// The hosts that riskgate reaches without the proxy, with commas between.
    direct_hosts: String,
}

impl fmt::Debug for ProxySettings {
    /// Omits the value, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variable = self.proxy.as_ref().map(|(variable, _)| variable);
        f.debug_struct("ProxySettings")
            .field("variable", &variable)
            .field("direct_hosts", &self.direct_hosts)
            .finish()
    }
}

/// A proxy in use.
pub(super) struct UsedProxy {
    pub client_setting: ureq::Proxy,
    /// Host and port, as an error shows them.
    pub host_and_port: String,
}

impl ProxySettings {
    /// Reads the variables of the environment. `read` returns the value of a variable.
    pub fn read(read: impl Fn(&str) -> Option<String>) -> ProxySettings {
        let is_filled = |value: &String| !value.trim().is_empty();
        let proxy = PROXY_VARIABLES
            .into_iter()
            .find_map(|variable| Some((variable, read(variable).filter(is_filled)?)));
        let direct_hosts = NO_PROXY_VARIABLES.into_iter().find_map(read).unwrap_or_default();
        ProxySettings { proxy, direct_hosts }
    }

    /// The proxy for `https://` requests to this host and port; `None` if riskgate needs none.
    ///
    /// # Errors
    /// If a variable does not name a usable proxy.
    pub(super) fn proxy_for(&self, host: &str, port: u16) -> Result<Option<UsedProxy>, String> {
        match &self.proxy {
            Some((variable, value)) if !self.is_direct(host, port) => {
                parse_proxy(variable, value.trim()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether riskgate reaches this host without a proxy. An entry is a host, with or without a
    /// port. `*` stands for any text at the beginning or end of a host; a dot at the beginning, for
    /// all hosts below; a dot at the end, for all addresses in a network.
    fn is_direct(&self, host: &str, port: u16) -> bool {
        let host = host.to_ascii_lowercase();
        self.direct_hosts.split(',').any(|entry| {
            let entry = entry.trim().to_ascii_lowercase();
            let (pattern, wanted_port) = split_port(&entry);
            let pattern = pattern.trim_start_matches('[').trim_end_matches(']');
            let is_same_host = match pattern.strip_prefix('*') {
                Some(end) => host.ends_with(end),
                None if pattern.starts_with('.') => host.ends_with(pattern),
                None if pattern.ends_with('.') => host.starts_with(pattern),
                None => match pattern.strip_suffix('*') {
                    Some(beginning) => host.starts_with(beginning),
                    None => host == pattern,
                },
            };
            is_same_host && wanted_port.is_none_or(|wanted| wanted == port)
        })
    }
}

/// Splits the port from an entry. An IPv6 address with a port stands between brackets.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    let with_port = entry
        .rsplit_once(':')
        .filter(|(host, _)| !host.contains(':') || (host.starts_with('[') && host.ends_with(']')));
    match with_port.map(|(host, port)| (host, port.parse())) {
        Some((host, Ok(port))) => (host, Some(port)),
        _ => (entry, None),
    }
}

fn parse_proxy(variable: &str, value: &str) -> Result<UsedProxy, String> {
    let wrong = |found: &str| {
        let expected = "the URL of a proxy, http://HOST:PORT or https://HOST:PORT";
        Err(format!("{variable}: expected {expected}, but found {found}"))
    };
    let scheme = value.split_once("://").map_or("http", |(scheme, _)| scheme);
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
        return wrong(&match is_scheme {
            true => format!("the scheme {scheme}"),
            false => "another text".to_owned(),
        });
    }
    match ureq::Proxy::new(value) {
        Ok(proxy) if !proxy.host().is_empty() => {
            let host_and_port = format!("{}:{}", proxy.host(), proxy.port());
            Ok(UsedProxy { client_setting: proxy, host_and_port })
        }
        _ => wrong("another text"),
    }
}

#[cfg(test)]
mod tests;
