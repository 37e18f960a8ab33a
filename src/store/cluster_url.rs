//! `redis+cluster://`: the address of a Redis Cluster.

use std::fmt;

use super::sentinel_url::{is_valid_for_redis_crate, parse_host, split_user_info};

/// The port of a server, if the address has none.
const DEFAULT_PORT: u16 = 6_379;
/// The most servers in an address. Each of them can name all others.
const MAX_HOSTS: usize = 16;

/// The parts of `redis+cluster://[USER:PASSWORD@]HOST[:PORT],…`. User and password are those of all
/// servers of the Cluster. The hosts are some of its servers.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterUrl {
    has_tls: bool,
    /// `USER:PASSWORD@` as in the URL; may be empty.
    user_info: String,
    /// The servers that the address names, each as `HOST:PORT`.
    hosts: Vec<String>,
}

impl ClusterUrl {
    /// Parses the address; `None` for any other text.
    pub(super) fn parse(text: &str) -> Option<ClusterUrl> {
        let (scheme, rest) = text.split_once("://")?;
        let has_tls = match scheme {
            "redis+cluster" => false,
            "rediss+cluster" => true,
            _ => return None,
        };
        let (user_info, hosts) = split_user_info(rest);
        // A Cluster has one database.
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts).split(',');
        let hosts = hosts.map(|host| parse_host(host, DEFAULT_PORT)).collect::<Option<Vec<_>>>()?;
        let url = ClusterUrl { has_tls, user_info: user_info.to_owned(), hosts };
        let is_valid = url.hosts.len() <= MAX_HOSTS
            && url.hosts.iter().all(|host| is_valid_for_redis_crate(&url.server_url(host)));
        is_valid.then_some(url)
    }

    /// The servers that the address names, each as `HOST:PORT`.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The address of a server, with user and password. `host` is `HOST:PORT`.
    pub(super) fn server_url(&self, host: &str) -> String {
        format!("{}://{}{host}/0", self.server_scheme(), self.user_info)
    }

    fn server_scheme(&self) -> &'static str {
        if self.has_tls { "rediss" } else { "redis" }
    }
}

/// The address without user and password.
impl fmt::Display for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+cluster://{}", self.server_scheme(), self.hosts.join(","))
    }
}

/// The address without user and password.
impl fmt::Debug for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
