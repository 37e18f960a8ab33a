//! `redis+sentinel://`: the address of a service whose primary server Sentinels name.

use std::fmt;

/// The port of a Sentinel, if the address has none.
const DEFAULT_SENTINEL_PORT: u16 = 26_379;
/// The most Sentinels. riskgate asks all of them each second.
const MAX_SENTINELS: usize = 16;

/// The parts of `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],…/SERVICE[/DATABASE]`. User and
/// password are those of the data servers.
#[derive(Clone, PartialEq, Eq)]
pub struct SentinelUrl {
    has_tls: bool,
    /// `USER:PASSWORD@` as in the URL; may be empty.
    user_info: String,
    /// The Sentinels, each as `HOST:PORT`.
    hosts: Vec<String>,
    service: String,
    database: Option<String>,
}

impl SentinelUrl {
    /// Parses the address; `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<SentinelUrl> {
        let (scheme, rest) = text.split_once("://")?;
        let has_tls = match scheme {
            "redis+sentinel" => false,
            "rediss+sentinel" => true,
            _ => return None,
        };
        let (user_info, behind_user) = split_user_info(rest);
        let (hosts, path) = behind_user.split_once('/')?;
        let hosts = hosts.split(',').map(|host| parse_host(host, DEFAULT_SENTINEL_PORT));
        let hosts = hosts.collect::<Option<Vec<String>>>()?;
        let (service, database) = match path.split_once('/') {
            Some((service, database)) => (service, Some(database.to_owned())),
            None => (path, None),
        };
        let is_service = !service.is_empty() && service.bytes().all(is_name_byte);
        let url = SentinelUrl {
            has_tls,
            user_info: user_info.to_owned(),
            hosts,
            service: service.to_owned(),
            database,
        };
        let is_valid = is_service
            && url.hosts.len() <= MAX_SENTINELS
            && url.hosts.iter().all(|host| is_valid_for_redis_crate(&url.server_url(host)));
        is_valid.then_some(url)
    }

    /// The Sentinels, each as `HOST:PORT`.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The name under which the Sentinels watch the server.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The address of a data server, with user and password. `host` is `HOST:PORT`.
    pub(super) fn server_url(&self, host: &str) -> String {
        let database = self.database.as_deref().unwrap_or("0");
        format!("{}://{}{host}/{database}", self.server_scheme(), self.user_info)
    }

    /// The address of a Sentinel, without user and password.
    pub(super) fn sentinel_url(&self, host: &str) -> String {
        format!("{}://{host}", self.server_scheme())
    }

    fn server_scheme(&self) -> &'static str {
        if self.has_tls { "rediss" } else { "redis" }
    }
}

/// The address without user and password.
impl fmt::Display for SentinelUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, hosts) = (self.server_scheme(), self.hosts.join(","));
        write!(f, "{scheme}+sentinel://{hosts}/{}", self.service)?;
        match &self.database {
            Some(database) => write!(f, "/{database}"),
            None => Ok(()),
        }
    }
}

/// The address without user and password.
impl fmt::Debug for SentinelUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns true if the redis crate accepts the address of a server.
pub(super) fn is_valid_for_redis_crate(text: &str) -> bool {
    redis::parse_redis_url(text).is_some() && redis::Client::open(text).is_ok()
}

/// Returns true if the name of a host or of a service may contain the byte.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

/// Splits what follows `://` into `USER:PASSWORD@`, which may be empty, and the rest.
pub(super) fn split_user_info(text: &str) -> (&str, &str) {
    text.split_at(text.rfind('@').map_or(0, |at| at + 1))
}

/// Returns `HOST:PORT` for a host with or without a port. `None` for any other text.
pub(super) fn parse_host(text: &str, default_port: u16) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of `[::1]` are no separators.
        Some((_, port)) if port.ends_with(']') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(is_name_byte),
    };
    let port =
        port.map_or(Some(default_port), |port| port.parse().ok().filter(|port| *port > 0))?;
    is_host.then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests;
