//! `redis+sentinel://` and `redis+cluster://`: addresses of several servers.

use std::fmt;

/// The port of a Sentinel, if the address has none.
const DEFAULT_SENTINEL_PORT: u16 = 26_379;
/// The port of a server of a Cluster, if the address has none.
const DEFAULT_CLUSTER_PORT: u16 = 6_379;
/// The most servers in an address. riskgate asks all Sentinels each second. Each server of a
/// Cluster can name all others.
const MAX_HOSTS: usize = 16;

/// The servers of an address, and what the address says about the connections to data servers.
#[derive(Clone, PartialEq, Eq)]
struct NamedServers {
    has_tls: bool,
    /// `USER:PASSWORD@` of the data servers, as in the URL; may be empty.
    user_info: String,
    /// The servers that the address names, each as `HOST:PORT`.
    hosts: Vec<String>,
}

impl NamedServers {
    /// Parses `redis+KIND://[USER:PASSWORD@]HOST[:PORT],…`, or the same with `rediss`, and a path.
    /// Returns the path without its `/` as well; `None` if there is no `/`.
    fn parse<'t>(
        text: &'t str,
        kind: &str,
        default_port: u16,
    ) -> Option<(NamedServers, Option<&'t str>)> {
        let (scheme, rest) = text.split_once("://")?;
        let has_tls = match scheme.strip_suffix(kind)?.strip_suffix('+')? {
            "redis" => false,
            "rediss" => true,
            _ => return None,
        };
        let (user_info, behind_user) = split_user_info(rest);
        let (hosts, path) = match behind_user.split_once('/') {
            Some((hosts, path)) => (hosts, Some(path)),
            None => (behind_user, None),
        };
        let hosts = hosts.split(',').map(|host| parse_host(host, default_port));
        let hosts = hosts.collect::<Option<Vec<String>>>()?;
        let servers = NamedServers { has_tls, user_info: user_info.to_owned(), hosts };
        (servers.hosts.len() <= MAX_HOSTS).then_some((servers, path))
    }

    fn has_valid_hosts(&self, database: &str) -> bool {
        self.hosts.iter().all(|host| is_valid_for_redis_crate(&self.server_url(host, database)))
    }

    fn server_url(&self, host: &str, database: &str) -> String {
        format!("{}://{}{host}/{database}", self.scheme(), self.user_info)
    }

    fn scheme(&self) -> &'static str {
        if self.has_tls { "rediss" } else { "redis" }
    }
}

/// The servers without user and password.
impl fmt::Debug for NamedServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.hosts.join(","))
    }
}

/// The parts of `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],…/SERVICE[/DATABASE]`. User and
/// password are those of the data servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelUrl {
    sentinels: NamedServers,
    service: String,
    database: Option<String>,
}

impl SentinelUrl {
    /// Parses the address; `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<SentinelUrl> {
        let (sentinels, path) = NamedServers::parse(text, "sentinel", DEFAULT_SENTINEL_PORT)?;
        let (service, database) = match path?.split_once('/') {
            Some((service, database)) => (service, Some(database.to_owned())),
            None => (path?, None),
        };
        let is_service = !service.is_empty() && service.bytes().all(is_name_byte);
        let url = SentinelUrl { sentinels, service: service.to_owned(), database };
        (is_service && url.sentinels.has_valid_hosts(url.database())).then_some(url)
    }

    /// The Sentinels, each as `HOST:PORT`.
    pub fn hosts(&self) -> &[String] {
        &self.sentinels.hosts
    }

    /// The name under which the Sentinels watch the server.
    pub fn service(&self) -> &str {
        &self.service
    }

    fn database(&self) -> &str {
        self.database.as_deref().unwrap_or("0")
    }

    /// The address of a data server, with user and password. `host` is `HOST:PORT`.
    pub(super) fn server_url(&self, host: &str) -> String {
        self.sentinels.server_url(host, self.database())
    }

    /// The address of a Sentinel, without user and password.
    pub(super) fn sentinel_url(&self, host: &str) -> String {
        format!("{}://{host}", self.sentinels.scheme())
    }
}

/// The address without user and password.
impl fmt::Display for SentinelUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, hosts) = (self.sentinels.scheme(), self.hosts().join(","));
        write!(f, "{scheme}+sentinel://{hosts}/{}", self.service)?;
        match &self.database {
            Some(database) => write!(f, "/{database}"),
            None => Ok(()),
        }
    }
}

/// The parts of `redis+cluster://[USER:PASSWORD@]HOST[:PORT],…`. User and password are those of all
/// servers of the Cluster. The hosts are some of its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterUrl(NamedServers);

impl ClusterUrl {
    /// Parses the address; `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<ClusterUrl> {
        let (servers, path) = NamedServers::parse(text, "cluster", DEFAULT_CLUSTER_PORT)?;
        // A Cluster has one database.
        let is_valid = path.is_none_or(str::is_empty) && servers.has_valid_hosts("0");
        is_valid.then_some(ClusterUrl(servers))
    }

    /// The servers that the address names, each as `HOST:PORT`.
    pub fn hosts(&self) -> &[String] {
        &self.0.hosts
    }

    /// The address of a server, with user and password. `host` is `HOST:PORT`.
    pub(super) fn server_url(&self, host: &str) -> String {
        self.0.server_url(host, "0")
    }
}

/// The address without user and password.
impl fmt::Display for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+cluster://{}", self.0.scheme(), self.hosts().join(","))
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
